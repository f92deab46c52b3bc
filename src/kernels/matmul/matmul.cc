// The plan: rounds inputs, splits tiles over the threads, walks K in stretches. No intrinsics.
//
// A worker walks: its tiles of every job > blocks of rows > stretches of K. Each stretch of a tile is unpacked into L1 once
// and multiplied with all rows of the block; a block of rows is sized to stay in L2.
#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/cpu_vendor.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/many_rows.h"

namespace hone {
namespace {

constexpr int64_t kMaxRowBlock = 512;         // an accumulator of a worker is then 64 KiB
constexpr int64_t kTilesToStore = 4;          // whose sums go to y together, 512 bytes a row: rows a power of two apart share sets
constexpr int64_t kRowBlockBytes = 1 << 20;   // of x: half of a 2 MiB L2
constexpr int64_t kFewElements = 16384;       // inputs that one thread rounds faster than a barrier takes
constexpr int64_t kTilesToOwn = 8;            // tiles a thread from which each job keeps the split of Pack
constexpr int64_t kRowsForBytes = 16;         // reading a tile costs about as much as multiplying this many rows
constexpr int64_t kChunkBytes = 128 * 1024;   // of W that a thread takes at once for few rows: ten microseconds of reading
constexpr int64_t kChunkBytesTogether = 256 * 1024;  // of each of several: the thread leaves one for the other seldom
constexpr size_t kNextBytes = 96 * 1024;      // of the next matrix, a thread: about what memory gives it between two products
constexpr int64_t kTiledSpeed = 4;            // rows in BF16 tiles that cost as much as one of the others

struct WorkerBuffer {
  alignas(64) uint8_t codes[2][kCodeStretch * kPanelRows];
  alignas(64) float scales[2][kCodeStretch / 16 * kPanelRows];
  alignas(64) float mins[2][kCodeStretch / 16 * kPanelRows];
  alignas(64) float weights[2][kFloatStretch * kPanelRows];
  alignas(64) float accumulators[kTilesToStore][kMaxRowBlock * kTileColumns];
  ReadRanges ahead;  // of few rows: goes on from one call to the next
};

// Rows that kernels of few rows multiply, in parts of at most kFewRows: each part reads a tile again, from L2 but for the first.
// Kernels with groups (VNNI) are faster so than by unpacking up to kRowsInParts, others of codes always, measured (bench/RESULTS.md);
// those take blocks of x as well from kRowsToBlock rows on (TileWork::Run).
int64_t MostFewRows(const MatmulKernel& kernel) {
  if (kernel.few_rows == nullptr) return 0;
  return kernel.few_rows_groups ? kRowsInParts : kernel.format->is_float() ? kFewRows : kRowsToBlock - 1;
}
int64_t Parts(int64_t m) { return (m + kFewRows - 1) / kFewRows; }
int64_t PartBegin(int64_t m, int64_t part) { return m * part / Parts(m); }

// Sums of codes as one format wants them: per group, times -offset and times the scale.
struct GroupSums {
  int group, offset;
  int32_t* init;        // [terms * m][k / group]
  float* sums;          // [m][k / group], of all terms
  bool wants_groups;
  std::byte* groups;     // FewRowsGroup or FewRowsWords of each part of the rows, if wanted
};

// Rows of x as int8, shared by the jobs that multiply them. With two terms, rows [m, 2 m) are the second term's.
struct RoundedInput {
  const float* x;
  int64_t x_stride, m, k;
  int terms;
  bool skips;           // kernels skip the first term of groups that are not wide
  RoundRowFn round_row;
  int64_t code_stride;  // bytes
  int8_t* codes;
  float* scales;        // [m][k / 32]
  int32_t* sums;        // [terms * m][k / 16]
  uint8_t* wide;        // [m][k / 32], written if kernels skip
  std::vector<GroupSums> group_sums;
};

struct PlannedJob {
  const MatmulJob* job;
  const MatmulKernel* kernel;  // what multiplies its rows outside of tiles
  int input;          // index into inputs, -1 for F32 activations
  int sums;           // index into its group_sums
  int tiled;          // index into tiled inputs if the job takes the path for many rows, else -1
  int64_t row_parts;  // the rows are split in so many parts when there are fewer tiles than threads
  int64_t units;      // tiles * row_parts
  int64_t unit_cost, cost_before;
};

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

struct MatmulScratch::State {
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};
  };
  Buffer arena;    // rounded inputs
  Buffer workers;  // WorkerBuffer a thread
  Buffer many_rows;  // ManyRowsBuffer a thread
  TiledInputs tiled;
  std::vector<RoundedInput> inputs;  // never shrinks: the vectors inside keep their memory
  size_t input_count = 0;
  std::vector<PlannedJob> jobs;
  std::unique_ptr<Cursor[]> cursors;  // a thread: the next of its chunks
  int cursor_count = 0;
  int64_t rounded_rows = 0, rounded_elements = 0;
  // Weights of one pass are asked for as read once: where that was measured. (Intel's cores keep such lines out of L2, too.)
  const bool may_read_once = CpuIsAmd();
};

namespace {

using State = MatmulScratch::State;

// Bytes of a rounded input in the arena. Rows of codes are an odd number of cache lines apart, so that a column of rows does
// not fall into one set of the cache.
int64_t CodeStride(int64_t k) { return (k / 64 * 64) + 64 + (k / 64 % 2 == 0 ? 0 : 64); }
int64_t ScaleBytes(int64_t m, int64_t k) { return RoundUp(m * (k / 32) * 4, 64); }
int64_t SumBytes(int64_t m, int64_t k) { return RoundUp(m * (k / 16) * 4, 64); }
int64_t GroupBytes(int64_t m, int64_t k) { return RoundUp(m * (k / 32) * int64_t{sizeof(FewRowsWords)}, 64); }
int64_t WideBytes(int64_t m, int64_t k) { return RoundUp(m * (k / 32), 64); }
int64_t InputBytes(int64_t m, int64_t k, int64_t group_sums) {
  return m * CodeStride(k) + ScaleBytes(m, k) + WideBytes(m, k) + SumBytes(m, k) * (1 + 2 * group_sums) +
         group_sums * GroupBytes(std::min<int64_t>(m, 2 * kRowsInParts), k);
}

// Index of the input of `job`; looks among the latest only, since jobs that share one stand together.
int FindInput(State& s, const MatmulJob& job, const MatmulKernel& kernel) {
  const RoundRowFn round_row = kernel.arithmetic->round_row;
  const bool skips = job.weight->input_terms() == 2 && kernel.skips_terms();
  constexpr size_t kLatest = 8;
  for (size_t i = s.input_count; i > 0 && s.input_count - i < kLatest; --i) {
    const RoundedInput& input = s.inputs[i - 1];
    if (input.x == job.x && input.x_stride == job.x_stride && input.m == job.m && input.k == job.weight->k() &&
        input.round_row == round_row && input.skips == skips && input.terms == job.weight->input_terms()) {
      return static_cast<int>(i - 1);
    }
  }
  if (s.input_count == s.inputs.size()) s.inputs.emplace_back();
  RoundedInput& input = s.inputs[s.input_count];
  input.x = job.x, input.x_stride = job.x_stride, input.m = job.m, input.k = job.weight->k(), input.round_row = round_row;
  input.terms = job.weight->input_terms(), input.skips = skips;
  input.group_sums.clear();
  s.rounded_rows += input.m;
  s.rounded_elements += input.m * input.k;
  return static_cast<int>(s.input_count++);
}

int FindGroupSums(RoundedInput& input, const MatmulKernel& kernel) {
  const PanelFormat& format = *kernel.format;
  size_t i = 0;
  while (i < input.group_sums.size() && (input.group_sums[i].group != format.group || input.group_sums[i].offset != format.offset)) ++i;
  if (i == input.group_sums.size()) input.group_sums.push_back({format.group, format.offset, nullptr, nullptr, false, nullptr});
  if (kernel.few_rows_groups && input.m <= kRowsInParts) input.group_sums[i].wants_groups = true;
  return static_cast<int>(i);
}

void PlaceInputs(State& s) {
  int64_t bytes = 0;
  for (size_t i = 0; i < s.input_count; ++i) {
    const RoundedInput& input = s.inputs[i];
    bytes += InputBytes(input.terms * input.m, input.k, static_cast<int64_t>(input.group_sums.size()));
  }
  if (static_cast<int64_t>(s.arena.size()) < bytes) s.arena = Buffer(bytes);
  std::byte* at = s.arena.data();
  const auto take = [&at](int64_t size) { return std::exchange(at, at + size); };
  for (size_t i = 0; i < s.input_count; ++i) {
    RoundedInput& input = s.inputs[i];
    const int64_t rows = input.terms * input.m;
    input.code_stride = CodeStride(input.k);
    input.codes = reinterpret_cast<int8_t*>(take(rows * input.code_stride));
    input.scales = reinterpret_cast<float*>(take(ScaleBytes(rows, input.k)));
    input.sums = reinterpret_cast<int32_t*>(take(SumBytes(rows, input.k)));
    input.wide = reinterpret_cast<uint8_t*>(take(WideBytes(rows, input.k)));
    for (GroupSums& sums : input.group_sums) {
      sums.init = reinterpret_cast<int32_t*>(take(SumBytes(rows, input.k)));
      sums.sums = reinterpret_cast<float*>(take(SumBytes(rows, input.k)));
      if (sums.wants_groups) sums.groups = take(GroupBytes(rows, input.k));
    }
  }
}

// Where the groups of the part of rows stand that begins with row `begin`.
template <typename Group>
Group* GroupsOf(const RoundedInput& input, const GroupSums& sums, int64_t begin) {
  return reinterpret_cast<Group*>(sums.groups + input.terms * begin * (input.k / 32) * int64_t{sizeof(FewRowsWords)});
}

// Row `row` once more, as FewRowsTile::x_groups or x_words has it; the groups of a part stand together.
void WriteGroups(const RoundedInput& input, const GroupSums& sums, int64_t row) {
  const int64_t k32 = input.k / 32, parts = 32 / sums.group, second = input.m + row;
  int64_t part = 0;
  while (PartBegin(input.m, part + 1) <= row) ++part;
  const int64_t begin = PartBegin(input.m, part), rows = PartBegin(input.m, part + 1) - begin;
  if (rows >= kRowsOfWords) {
    const bool two = input.terms == 2;
    return WriteWordsVnni({.k = input.k,
                           .group = sums.group,
                           .codes = input.codes + row * input.code_stride,
                           .second = two ? input.codes + second * input.code_stride : nullptr,
                           .scales = input.scales + row * k32,
                           .init = sums.init + row * k32 * parts,
                           .second_init = two ? sums.init + second * k32 * parts : nullptr,
                           .sums = sums.sums + row * k32 * parts,
                           .to = GroupsOf<FewRowsWords>(input, sums, begin) + row - begin,
                           .rows = rows});
  }
  for (int64_t term = 0; term < input.terms; ++term) {
    const int8_t* codes = input.codes + (term * input.m + row) * input.code_stride;
    const int32_t* init = sums.init + (term * input.m + row) * k32 * parts;
    FewRowsGroup* to = GroupsOf<FewRowsGroup>(input, sums, begin) + term * rows + row - begin;
    for (int64_t g = 0; g < k32; ++g, to += input.terms * rows) {
      std::memcpy(to->codes, codes + 32 * g, 32);
      to->scale = input.scales[row * k32 + g];
      to->init[0] = init[g * parts], to->init[1] = init[g * parts + parts - 1];
      to->sum = sums.sums[(row * k32 + g) * parts];
    }
  }
}

void RoundRow(const RoundedInput& input, int64_t row) {
  const int64_t k32 = input.k / 32, second = input.m + row;
  const bool two = input.terms == 2;
  const RoundedRow to = {.codes = input.codes + row * input.code_stride,
                         .scales = input.scales + row * k32,
                         .sums = input.sums + row * 2 * k32,
                         .second = two ? input.codes + second * input.code_stride : nullptr,
                         .second_sums = two ? input.sums + second * 2 * k32 : nullptr,
                         .wide = input.skips ? input.wide + row * k32 : nullptr};
  input.round_row(input.x + row * input.x_stride, input.k, to);
  for (const GroupSums& out : input.group_sums) {
    const int64_t groups = input.k / out.group;
    const auto sum_of = [&](const int32_t* sums, int64_t g) { return out.group == 16 ? sums[g] : sums[2 * g] + sums[2 * g + 1]; };
    for (int64_t g = 0; g < groups; ++g) {
      int32_t sum = sum_of(to.sums, g);
      out.init[row * groups + g] = -out.offset * sum;
      if (two) {
        const int32_t more = sum_of(to.second_sums, g);
        out.init[second * groups + g] = -out.offset * more;
        sum = kDigits * sum + more;
      }
      out.sums[row * groups + g] = to.scales[g * out.group / 32] * static_cast<float>(sum);
    }
    if (out.wants_groups) WriteGroups(input, out, row);
  }
}

// Rounds rows [begin, end) of all inputs laid end to end.
void RoundRows(const State& s, int64_t begin, int64_t end) {
  for (size_t i = 0; i < s.input_count && end > 0; ++i) {
    const RoundedInput& input = s.inputs[i];
    for (int64_t row = std::max<int64_t>(begin, 0); row < std::min(end, input.m); ++row) RoundRow(input, row);
    begin -= input.m, end -= input.m;
  }
}

// Splits work into units of one tile by all rows, or by a part of the rows when tiles are few.
void PlanUnits(State& s, int threads) {
  int64_t tiles = 0;
  for (const PlannedJob& planned : s.jobs) tiles += planned.job->weight->tile_count();
  int64_t cost = 0;
  for (PlannedJob& planned : s.jobs) {
    const MatmulJob& job = *planned.job;
    constexpr int64_t kFewestRows = 32;  // a part of a job of many rows is a multiple of it
    planned.row_parts = 1;
    if (tiles < 4 * threads && tiles > 0 && job.m > MostFewRows(*planned.kernel)) {
      planned.row_parts = std::clamp<int64_t>(4 * threads / tiles, 1, (job.m + kFewestRows - 1) / kFewestRows);
    }
    planned.units = job.weight->tile_count() * planned.row_parts;
    const int64_t rows = job.m / planned.row_parts / (planned.tiled >= 0 ? kTiledSpeed : 1);
    planned.unit_cost = std::max<int64_t>(1, job.weight->k()) * (rows + kRowsForBytes);
    planned.cost_before = cost;
    cost += planned.units * planned.unit_cost;
  }
}

// Where a tile begins; tile_count(): where the last one ends.
const uint8_t* TileBytes(const PackedMatrix& weight, int64_t tile) {
  const auto* first = reinterpret_cast<const uint8_t*>(weight.Find(0, 0, 0));
  return first + std::min(static_cast<int64_t>(weight.bytes()), tile * 2 * weight.panel_bytes());
}

// What one worker does to one tile and a block of rows.
class TileWork {
 public:
  TileWork(const State& state, const PlannedJob& planned, WorkerBuffer& buffer)
      : job_(*planned.job), weight_(*job_.weight), kernel_(*planned.kernel), buffer_(buffer) {
    if (planned.input >= 0) input_ = &state.inputs[planned.input], sums_ = &input_->group_sums[planned.sums];
    buffer_.ahead.most_stride = PartBegin(job_.m, 1) >= kFewRows - 1 ? kShortStride : kReadStride;
    buffer_.ahead.again = Parts(job_.m) > 1 || !state.may_read_once;
  }

  // Rows that stay in L2 beside the unpacked tile.
  int64_t row_block() const {
    const int64_t row_bytes = std::max<int64_t>(1, weight_.k() * (input_ != nullptr ? input_->terms : 4));
    return std::clamp<int64_t>(kRowBlockBytes / row_bytes, kRowsInParts, kMaxRowBlock);
  }

  // At most kTilesToStore tiles. REQUIRES: end - begin <= kMaxRowBlock.
  void Run(int64_t tile_begin, int64_t tile_end, int64_t begin, int64_t end) {
    const int rows = static_cast<int>(end - begin);
    const bool few = job_.m <= MostFewRows(kernel_) || kernel_.skips_terms() || (kernel_.few_rows != nullptr && !kernel_.few_rows_groups && rows <= kFewRows);
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      if (few) {
        BeginRange(&buffer_.ahead, TileBytes(weight_, tile), TileBytes(weight_, tile + 1));
        RunFewRows(tile, begin, end);
      } else {
        accumulator_ = buffer_.accumulators[tile - tile_begin];
        Sum(tile, begin, rows);
      }
    }
    if (!few) Store(tile_begin, tile_end, begin, rows);
  }

  // Rows [begin, end): all of the job's where the kernel takes groups. REQUIRES: the kernel has few_rows, they are at most
  // MostFewRows; the tile is in the range that the thread has begun to read.
  void RunFewRows(int64_t tile, int64_t begin, int64_t end) {
    const int64_t m = end - begin;
    ReadRanges nothing{};
    for (int64_t part = 0; part < Parts(m); ++part) {
      const int64_t first = PartBegin(m, part);
      RunPart(tile, begin + first, static_cast<int>(PartBegin(m, part + 1) - first), part == 0 ? &buffer_.ahead : &nothing);
    }
  }

 private:
  void RunPart(int64_t tile, int64_t begin, int rows, ReadRanges* ahead) {
    FewRowsTile few{.chunks = TileBytes(weight_, tile),
                    .ahead = ahead,
                    .panels = weight_.panels_of(tile),
                    .k = weight_.k(),
                    .rows = rows,
                    .accumulator = buffer_.accumulators[0]};
    if (input_ != nullptr) {
      const int64_t k32 = input_->k / 32, groups = input_->k / kernel_.format->group;
      few.terms = input_->terms, few.term_rows = input_->m;
      few.x = input_->codes + begin * input_->code_stride, few.x_stride = input_->code_stride;
      few.x_wide = input_->wide + begin * k32;
      few.x_scales = input_->scales + begin * k32, few.x_scale_stride = k32;
      few.x_init = sums_->init + begin * groups, few.x_sums = sums_->sums + begin * groups, few.x_group_stride = groups;
      if (sums_->groups != nullptr && rows >= kRowsOfWords) few.x_words = GroupsOf<FewRowsWords>(*input_, *sums_, begin);
      if (sums_->groups != nullptr && rows < kRowsOfWords) few.x_groups = GroupsOf<FewRowsGroup>(*input_, *sums_, begin);
    } else {
      few.x_floats = job_.x + begin * job_.x_stride, few.x_floats_stride = job_.x_stride;
    }
    kernel_.few_rows(few);
    Store(tile, tile + 1, begin, rows);
  }

  void Sum(int64_t tile, int64_t begin, int rows) {
    std::memset(accumulator_, 0, sizeof(float) * kTileColumns * rows);
    panels_ = weight_.panels_of(tile);
    next_ = reinterpret_cast<const uint8_t*>(weight_.Find(tile, 0, 0));
    for (int64_t k0 = 0; k0 < weight_.k(); k0 += kernel_.format->stretch()) {
      const int k = static_cast<int>(std::min<int64_t>(weight_.k() - k0, kernel_.format->stretch()));
      Unpack(k);
      if (kernel_.uses_codes()) {
        MultiplyCodes(begin, rows, k0, k);
        continue;
      }
      if (kernel_.format->is_float()) {
        MultiplyFloats(begin, rows, k0, k);
        continue;
      }
      for (int part = 0; part < k; part += kFloatStretch) {
        const int part_k = std::min(k - part, kFloatStretch);
        DequantizeCodes(part, part_k);
        MultiplyFloats(begin, rows, k0 + part, part_k);
      }
    }
  }

  // Unpacks both panels of the next stretch. The bytes after it are asked for on the way, half of them here (ahead_ moves on), half
  // while multiplying.
  void Unpack(int k) {
    const int panel_bytes = k / kernel_.format->chunk * chunk_bytes_;
    ahead_ = next_ + kPrefetchBytes;
    ahead_bytes_ = panels_ * panel_bytes / 2;
    for (int panel = 0; panel < panels_; ++panel, next_ += panel_bytes, ahead_ += panel_bytes / 2) {
      if (kernel_.format->is_float()) {
        kernel_.unpack->floats(next_, k, ahead_, buffer_.weights[panel]);
      } else {
        kernel_.unpack->codes(next_, k, ahead_, buffer_.codes[panel], buffer_.scales[panel], buffer_.mins[panel]);
      }
    }
  }

  void DequantizeCodes(int k0, int k) {
    const PanelFormat& format = *kernel_.format;
    for (int panel = 0; panel < panels_; ++panel) {
      const int group_at = k0 / format.group * kPanelRows;
      kernel_.arithmetic->dequantize_codes(buffer_.codes[panel] + k0 * kPanelRows, buffer_.scales[panel] + group_at,
                                           format.has_min ? buffer_.mins[panel] + group_at : nullptr, k, format.group,
                                           format.offset, buffer_.weights[panel]);
    }
  }

  void MultiplyFloats(int64_t begin, int rows, int64_t k0, int k) {
    kernel_.arithmetic->multiply_floats({.weights = {buffer_.weights[0], buffer_.weights[panels_ - 1]},
                                         .k = k,
                                         .x = job_.x + begin * job_.x_stride + k0,
                                         .x_stride = job_.x_stride,
                                         .rows = rows,
                                         .accumulator = accumulator_,
                                         .ahead = ahead_,
                                         .ahead_bytes = ahead_bytes_});
    ahead_bytes_ = 0;
  }

  // All terms of rows of the rounded input, from `begin`.
  void MultiplyCodes(int64_t begin, int rows, int64_t k0, int k) {
    const PanelFormat& format = *kernel_.format;
    const int second = panels_ - 1;
    const int64_t k32 = input_->k / 32, groups = input_->k / format.group;
    const int64_t group_at = begin * groups + k0 / format.group;
    kernel_.arithmetic->multiply_codes({.codes = {buffer_.codes[0], buffer_.codes[second]},
                                        .scales = {buffer_.scales[0], buffer_.scales[second]},
                                        .mins = {buffer_.mins[0], buffer_.mins[second]},
                                        .k = k,
                                        .group = format.group,
                                        .bits = format.bits,
                                        .has_min = format.has_min,
                                        .terms = input_->terms,
                                        .term_rows = input_->m,
                                        .x = input_->codes + begin * input_->code_stride + k0,
                                        .x_stride = input_->code_stride,
                                        .x_scales = input_->scales + begin * k32 + k0 / 32,
                                        .x_scale_stride = k32,
                                        .x_init = sums_->init + group_at,
                                        .x_sums = sums_->sums + group_at,
                                        .x_group_stride = groups,
                                        .rows = rows,
                                        .accumulator = accumulator_,
                                        .ahead = ahead_,
                                        .ahead_bytes = ahead_bytes_});
    ahead_bytes_ = 0;
  }

  void Store(int64_t tile_begin, int64_t tile_end, int64_t begin, int rows) {
    for (int row = 0; row < rows; ++row) {
      float* y = job_.y + (begin + row) * job_.y_stride;
      for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
        const float* from = buffer_.accumulators[tile - tile_begin] + row * kTileColumns;
        const int64_t n0 = tile * kTileColumns, columns = std::min<int64_t>(kTileColumns, weight_.n() - n0);
        if (job_.bias != nullptr) {
          for (int64_t n = 0; n < columns; ++n) y[n0 + n] = from[n] + job_.bias[n0 + n];
        } else if (columns == kTileColumns) {
          std::memcpy(y + n0, from, sizeof(float) * kTileColumns);
        } else {
          std::memcpy(y + n0, from, sizeof(float) * columns);
        }
      }
    }
  }

  const MatmulJob& job_;
  const PackedMatrix& weight_;
  const MatmulKernel& kernel_;
  WorkerBuffer& buffer_;
  float* accumulator_ = nullptr;    // of the current tile
  const RoundedInput* input_ = nullptr;
  const GroupSums* sums_ = nullptr;
  const int chunk_bytes_ = static_cast<int>(kernel_.format->chunk_bytes());
  int panels_ = 1;                  // of the current tile
  const uint8_t* next_ = nullptr;   // the next stretch of it
  const uint8_t* ahead_ = nullptr;  // what to ask for while multiplying
  int ahead_bytes_ = 0;
};

// Units of a job of many rows; parts of rows begin at multiples of 32.
void RunTiledUnits(const State& s, const PlannedJob& planned, int64_t begin, int64_t end, ManyRowsBuffer& buffer) {
  const MatmulJob& job = *planned.job;
  const int64_t parts = planned.row_parts;
  if (parts == 1) return RunManyRows(job, s.tiled, planned.tiled, begin, end, 0, job.m, buffer);
  const auto row_of = [&](int64_t part) { return part == parts ? job.m : job.m * part / parts / 32 * 32; };
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t tile = unit / parts, part = unit % parts;
    RunManyRows(job, s.tiled, planned.tiled, tile, tile + 1, row_of(part), row_of(part + 1), buffer);
  }
}

// Units [begin, end) of a job: unit = tile * row_parts + part.
void RunUnits(const State& s, const PlannedJob& planned, int64_t begin, int64_t end, WorkerBuffer& buffer) {
  TileWork work(s, planned, buffer);
  const int64_t m = planned.job->m, parts = planned.row_parts, block = work.row_block();
  if (parts > 1) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit % parts, row_end = m * (part + 1) / parts;
      for (int64_t row = m * part / parts; row < row_end; row += block) {
        work.Run(unit / parts, unit / parts + 1, row, std::min(row_end, row + block));
      }
    }
    return;
  }
  for (int64_t row = 0; row < m; row += block) {
    for (int64_t tile = begin; tile < end; tile += kTilesToStore) {
      work.Run(tile, std::min(end, tile + kTilesToStore), row, std::min(m, row + block));
    }
  }
}

// Whether each job is split as Pack split it, so that every thread reads what it wrote.
bool SplitAsPacked(const State& s, int count) {
  bool own = true;
  for (const PlannedJob& planned : s.jobs) own = own && planned.row_parts == 1 && planned.units >= kTilesToOwn * count;
  return own || count == 1;
}

// The units of `worker`: each job split as Pack split it if all jobs are large (`own`); otherwise all jobs laid end to end by
// cost and cut into equal parts.
void RunWorker(const State& s, const ThreadPool& threads, bool own, int worker, WorkerBuffer& buffer, ManyRowsBuffer* many_rows) {
  const int count = threads.count();
  const int64_t total = s.jobs.back().cost_before + s.jobs.back().units * s.jobs.back().unit_cost;
  const int64_t from = total / count * worker, to = worker + 1 == count ? total : total / count * (worker + 1);
  for (const PlannedJob& planned : s.jobs) {
    int64_t begin, end;
    if (own) {
      const auto range = threads.Range(planned.units, 1, worker);
      begin = static_cast<int64_t>(range.first), end = static_cast<int64_t>(range.second);
    } else {
      const auto unit_at = [&planned](int64_t cost) {  // the first unit that starts at `cost` or later
        const int64_t unit = (cost - planned.cost_before + planned.unit_cost - 1) / planned.unit_cost;
        return std::clamp<int64_t>(cost <= planned.cost_before ? 0 : unit, 0, planned.units);
      };
      begin = unit_at(from), end = unit_at(to);
    }
    if (begin >= end) continue;
    planned.tiled >= 0 ? RunTiledUnits(s, planned, begin, end, *many_rows) : RunUnits(s, planned, begin, end, buffer);
  }
}

// Whether all jobs are for few_rows kernels, and then are shared out by Chunks.
bool AllFewRows(const State& s) {
  return std::all_of(s.jobs.begin(), s.jobs.end(), [](const PlannedJob& planned) {
    return planned.tiled < 0 && planned.job->m <= MostFewRows(*planned.kernel);
  });
}

// Jobs of few rows, shared out while they run: a thread takes the chunks of tiles that it packed, in order, and then what the
// others have left. So a thread that lost its CPU holds the others up by two chunks (one in work, one asked for), not by its
// whole share. With `together`, a chunk is the same tiles of all jobs.
class Chunks {
 public:
  // Some tiles of one job; `last` of their chunk.
  struct Segment {
    const PlannedJob* planned = nullptr;  // null: nothing is left
    int64_t begin = 0, end = 0;
    bool last = false;
    const uint8_t* first_byte() const { return TileBytes(*planned->job->weight, begin); }
    const uint8_t* end_byte() const { return TileBytes(*planned->job->weight, end); }
  };

  Chunks(State& s, const ThreadPool& threads, bool together, int worker)
      : s_(s), threads_(threads), together_(together), owner_(worker), left_(threads.count()) {}

  Segment Next() {
    if (segment_.planned != nullptr && !segment_.last) {  // the next job of the chunk
      ++segment_.planned;
      segment_.last = segment_.planned == &s_.jobs.back();
      return segment_;
    }
    for (; left_ > 0; --left_, owner_ = (owner_ + 1) % threads_.count(), job_ = 0, before_ = 0, placed_ = false) {
      segment_ = Find(s_.cursors[owner_].next.fetch_add(1, std::memory_order_relaxed));
      if (segment_.planned != nullptr) return segment_;
    }
    return segment_ = {};
  }

 private:
  // Chunk `index` of owner_, which only rises.
  Segment Find(int64_t index) {
    for (; job_ < s_.jobs.size(); before_ += count_, ++job_, placed_ = false) {
      if (!placed_) Place();
      if (index - before_ < count_) {
        const int64_t begin = first_ + (index - before_) * tiles_;
        return {&s_.jobs[job_], begin, std::min(end_, begin + tiles_), !together_ || s_.jobs.size() == 1};
      }
      if (together_) break;
    }
    return {};
  }

  // The chunks of job_ that are owner_'s.
  void Place() {
    const PackedMatrix& weight = *s_.jobs[job_].job->weight;
    const int64_t bytes = together_ ? kChunkBytesTogether : kChunkBytes;
    tiles_ = std::max<int64_t>(1, bytes / std::max<int64_t>(1, 2 * weight.panel_bytes()));
    const auto range = threads_.Range(weight.tile_count(), 1, owner_);
    first_ = static_cast<int64_t>(range.first), end_ = static_cast<int64_t>(range.second);
    count_ = (end_ - first_ + tiles_ - 1) / tiles_;
    placed_ = true;
  }

  State& s_;
  const ThreadPool& threads_;
  const bool together_;
  int owner_, left_;  // whose chunks are taken now, and how many threads may still have some
  Segment segment_;   // the latest
  // The job whose chunks of owner_ are taken now: its tiles, chunks of so many tiles, and how many chunks stand before them.
  size_t job_ = 0;
  int64_t before_ = 0, first_ = 0, end_ = 0, tiles_ = 1, count_ = 0;
  bool placed_ = false;
};

// `following`: what the thread will read of the next matrix.
void RunChunks(State& s, const ThreadPool& threads, int worker, WorkerBuffer& buffer, const MatmulExtra& extra,
               std::span<const uint8_t> following) {
  Chunks chunks(s, threads, extra.finish != nullptr, worker);
  Chunks::Segment next = chunks.Next();
  while (next.planned != nullptr) {
    const Chunks::Segment segment = std::exchange(next, chunks.Next());
    const MatmulJob& job = *segment.planned->job;
    TileWork work(s, *segment.planned, buffer);
    BeginRange(&buffer.ahead, segment.first_byte(), segment.end_byte());
    if (next.planned != nullptr) {
      AnnounceRange(&buffer.ahead, next.first_byte(), next.end_byte());
    } else {
      AnnounceRange(&buffer.ahead, following.data(), following.data() + following.size());
    }
    for (int64_t tile = segment.begin; tile < segment.end; ++tile) work.RunFewRows(tile, 0, job.m);
    if (segment.last && extra.finish != nullptr) {
      (*extra.finish)(segment.begin * kTileColumns, std::min(job.weight->n(), segment.end * kTileColumns));
    }
  }
}

// What `worker` will read of `next`. It also remembers the beginning for the time that it waits, but for what is asked for while
// it still works.
std::span<const uint8_t> AskForNext(const PackedMatrix* next, ThreadPool& threads, int worker) {
  if (next == nullptr || !*next || next->bytes() == 0) return {};
  const auto [begin, end] = threads.Range(next->tile_count(), 1, worker);
  const std::span<const uint8_t> part(TileBytes(*next, begin), TileBytes(*next, end));
  const auto rest = part.subspan(std::min<size_t>(part.size(), kReadLead));
  threads.ReadNext(worker, reinterpret_cast<const std::byte*>(rest.data()), std::min(rest.size(), kNextBytes));
  return part;
}

}  // namespace

MatmulScratch::MatmulScratch(int64_t max_rows, int64_t max_k) : state_(std::make_unique<State>()) {
  HONE_CHECK(max_rows >= 0 && max_k >= 0);
  state_->arena = Buffer(InputBytes(std::max<int64_t>(1, 2 * max_rows), RoundUp(max_k, 32), 2));  // two terms
  state_->tiled.Reserve(max_rows, max_k);
}
MatmulScratch::~MatmulScratch() = default;
MatmulScratch::MatmulScratch(MatmulScratch&&) noexcept = default;
MatmulScratch& MatmulScratch::operator=(MatmulScratch&&) noexcept = default;

void Matmul(std::span<const MatmulJob> jobs, MatmulScratch& scratch, ThreadPool& threads, const MatmulExtra& extra) {
  State& s = scratch.state();
  s.jobs.clear();
  s.input_count = 0;
  s.tiled.Clear();
  s.rounded_rows = s.rounded_elements = 0;
  for (const MatmulJob& job : jobs) {
    HONE_CHECK(job.weight != nullptr && *job.weight && job.m >= 0);
    if (job.m == 0 || job.weight->n() == 0) continue;
    const MatmulKernel& kernel = job.weight->kernel();
    PlannedJob planned{.job = &job, .kernel = &kernel, .input = -1, .sums = 0, .tiled = -1};
    if (TakesTiles(*job.weight, job.m)) {
      planned.tiled = s.tiled.Find(job);
    } else if (kernel.uses_codes()) {
      planned.input = FindInput(s, job, kernel);
      planned.sums = FindGroupSums(s.inputs[planned.input], kernel);
    }
    s.jobs.push_back(planned);
  }
  if (s.jobs.empty()) return;
  PlaceInputs(s);
  s.tiled.Place();
  PlanUnits(s, threads.count());
  const size_t stride = RoundUp(sizeof(WorkerBuffer), 4096);
  if (s.workers.size() < stride * threads.count()) s.workers = Buffer(stride * threads.count());

  const size_t tiled_stride = RoundUp(sizeof(ManyRowsBuffer), 4096);
  const bool tiled = s.tiled.row_blocks() > 0;
  if (tiled && s.many_rows.size() < tiled_stride * threads.count()) s.many_rows = Buffer(tiled_stride * threads.count());

  const bool few = threads.count() == 1 || s.rounded_elements + s.tiled.elements() <= kFewElements;
  if (few) RoundRows(s, 0, s.rounded_rows), s.tiled.Round(0, s.tiled.row_blocks());
  const bool own = SplitAsPacked(s, threads.count()), shared = AllFewRows(s);
  if (shared && s.cursor_count < threads.count()) {
    s.cursors = std::make_unique<State::Cursor[]>(threads.count()), s.cursor_count = threads.count();
  }
  for (int i = 0; shared && i < threads.count(); ++i) s.cursors[i].next.store(0, std::memory_order_relaxed);
  const int64_t n = s.jobs[0].job->weight->n();
  if (extra.finish != nullptr) {
    for (const PlannedJob& planned : s.jobs) HONE_CHECK(planned.job->weight->n() == n);
  }
  threads.Run([&](int worker) {
    if (!few) {
      const auto [begin, end] = threads.Range(s.rounded_rows, 1, worker);
      RoundRows(s, begin, end);
      const auto blocks = threads.Range(s.tiled.row_blocks(), 1, worker);
      s.tiled.Round(blocks.first, blocks.second);
      threads.Barrier();
    }
    auto* many_rows = tiled ? reinterpret_cast<ManyRowsBuffer*>(s.many_rows.data() + tiled_stride * worker) : nullptr;
    WorkerBuffer& buffer = *reinterpret_cast<WorkerBuffer*>(s.workers.data() + stride * worker);
    const std::span<const uint8_t> following = AskForNext(extra.next, threads, worker);
    if (shared) return RunChunks(s, threads, worker, buffer, extra, following);
    RunWorker(s, threads, own, worker, buffer, many_rows);
    if (extra.finish != nullptr && own) {
      const auto [begin, end] = threads.Range((n + kTileColumns - 1) / kTileColumns, 1, worker);
      if (begin < end) (*extra.finish)(begin * kTileColumns, std::min<int64_t>(n, end * kTileColumns));
    }
  });
  if (extra.finish != nullptr && !own && !shared) {
    threads.ParallelFor(n, kTileColumns, [&](size_t begin, size_t end) { (*extra.finish)(begin, end); });
  }
}

}  // namespace hone
