// See bcq_report.h.
#include "compress/folder/bcq_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/numbers/bcq.h"
#include "compress/numbers/uniform.h"
#include "compress/read_matrix.h"
#include "kernels/matmul/matmul.h"
#include "models/family.h"
#include "models/model.h"
#include "tensor/blocks.h"

namespace hone {
namespace {

constexpr int kRounds = 15;
constexpr int64_t kSampledRows = 32;

// Any group does here: every shape is looked at, none is refused but by Check below.
class NoFormat final : public LinearFormat {
 public:
  explicit NoFormat(int64_t group) : group_(group) {}
  Result<void> Check(int64_t, int64_t columns) const override {
    if (columns % group_ == 0) return {};
    return Unsupported(fmt::format("{} columns are no whole groups of {}", columns, group_));
  }
  std::vector<TensorInfo> Outputs(const std::string&, int64_t, int64_t, DType) const override { return {}; }
  void Encode(const LinearWeight&, std::span<std::vector<std::byte>>, ThreadPool&) const override {}
  void Decode(std::span<const std::span<const std::byte>>, int64_t, int64_t, DType, int64_t, int64_t,
              float*) const override {}
  std::string ConfigJson(DType) const override { return "{}"; }

 private:
  const int64_t group_;
};

double RelativeError(const std::vector<float>& w, const std::function<float(int64_t, int64_t)>& back, int64_t columns) {
  double error = 0, power = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double e = back(static_cast<int64_t>(i) / columns, static_cast<int64_t>(i) % columns) - double{w[i]};
    error += e * e, power += double{w[i]} * w[i];
  }
  return power > 0 ? std::sqrt(error / power) : 0;
}

// Seconds of the fastest of a few runs.
double Fastest(const Clock& clock, const std::function<void()>& run) {
  double best = HUGE_VAL;
  for (int i = 0; i < 5; ++i) {
    const double start = clock.Now();
    run();
    best = std::min(best, clock.Now() - start);
  }
  return best;
}

// Both products on codes of no meaning: what they cost does not depend on them.
Result<void> TimeProducts(int bits, int64_t group, BcqReport* report, const Runtime& runtime) {
  const int64_t columns = group * std::max<int64_t>(1, 2048 / group), rows = 2048;
  BcqMatrix w{.q = bits, .rows = rows, .columns = columns, .group = group, .alpha = {}, .signs = {}};
  w.alpha.assign(static_cast<size_t>(rows * columns / group * bits), 0.5f);
  w.signs.resize(static_cast<size_t>(bits * rows * columns / 8));
  for (size_t i = 0; i < w.signs.size(); ++i) w.signs[i] = static_cast<uint8_t>(i * 37 + i / 251);
  std::vector<float> x(static_cast<size_t>(columns), 0.25f), y(static_cast<size_t>(rows));
  const double weights = static_cast<double>(rows) * static_cast<double>(columns);
  report->bcq_ns = 1e9 / weights * Fastest(*runtime.clock, [&] { MultiplyBcq(w, x.data(), y.data(), *runtime.threads); });
  if (columns % 256 != 0) return {};
  const DType type = bits <= 2 ? DType::kQ2_K : bits == 3 ? DType::kQ3_K : DType::kQ4_0;
  Tensor packed(type, Shape{rows, columns});
  std::fill_n(packed.data(), packed.view().bytes(), std::byte{0});
  HONE_TRY(const PackedMatrix matrix, PackedMatrix::Pack(packed.view(), {.isa = runtime.isa}, *runtime.threads));
  MatmulScratch scratch(1, columns);
  const MatmulJob job{.weight = &matrix, .x = x.data(), .x_stride = columns, .y = y.data(), .y_stride = rows, .m = 1};
  report->packed_ns = 1e9 / weights * Fastest(*runtime.clock, [&] { Matmul({&job, 1}, scratch, *runtime.threads); });
  report->packed_kernel = matrix.kernel_name();
  return {};
}

}  // namespace

Result<BcqReport> CompareBcq(const Checkpoint& checkpoint, int bits, int64_t group,
                             const std::function<bool(double)>& progress, const Runtime& runtime) {
  if (bits < 1 || bits > 4) return UsageError(fmt::format("binary codes have 1 to 4 bits, not --bits {}", bits));
  if (group < 8 || group % 8 != 0)
    return UsageError(fmt::format("binary codes want groups of a multiple of 8 columns, not --group {}", group));
  HONE_TRY(const FolderPlan plan, PlanFolder(checkpoint, NoFormat(group)));
  const double g = static_cast<double>(group);
  BcqReport report{.lines = {}, .bcq_bits = bits * (1 + 16 / g), .rtn_bits = bits + (16 + bits) / g};
  for (const FolderTensor& tensor : plan.tensors) {
    if (progress && !progress(static_cast<double>(report.lines.size()) / static_cast<double>(plan.tensors.size())))
      return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
    const int64_t rows = std::min(tensor.rows, kSampledRows), begin = (tensor.rows - rows) / 2;
    const TensorView view = tensor.view.Rows(begin, rows);
    HONE_TRY(const std::vector<float> w, ReadFiniteMatrix(checkpoint, view, tensor.name, *runtime.threads));
    const BcqMatrix coded =
        QuantizeBcqMatrix(bits, kRounds, w.data(), rows, tensor.columns, group, *runtime.threads);
    BcqLine line{tensor.name, tensor.rows, tensor.columns};
    line.bcq_error =
        RelativeError(w, [&](int64_t r, int64_t c) { return coded.Dequantize(r, c); }, tensor.columns);
    if (bits > 1) {
      const GridSpec spec{GridRule::kGptq, bits, false, Clip::kSearch, 99.9, 2.0};
      const UniformMatrix rounded = QuantizeUniform(spec, w.data(), rows, tensor.columns, group, false);
      const int64_t groups = tensor.columns / group;
      line.rtn_error = RelativeError(w, [&](int64_t r, int64_t c) {
        return rounded.grids[r * groups + c / group].Dequantize(rounded.codes[r * tensor.columns + c]);
      }, tensor.columns);
    }
    report.lines.push_back(std::move(line));
  }
  HONE_RETURN_IF_ERROR(TimeProducts(bits, group, &report, runtime));
  return report;
}

std::string BcqText(const BcqReport& report, int bits, int64_t group) {
  std::string text;
  double bcq = 0, rtn = 0;
  for (const BcqLine& line : report.lines) {
    text += fmt::format("{:<50} [{}, {}]  error {:.4f}", line.name, line.rows, line.columns, line.bcq_error);
    text += bits > 1 ? fmt::format(", rounded {:.4f}\n", line.rtn_error) : "\n";
    bcq += line.bcq_error, rtn += line.rtn_error;
  }
  const double count = static_cast<double>(std::max<size_t>(1, report.lines.size()));
  text += fmt::format("binary codes of {} bits in groups of {}: {:.2f} bits a weight, mean error {:.4f}", bits, group,
                      report.bcq_bits, bcq / count);
  if (bits > 1) text += fmt::format("; rounded within searched ranges: {:.2f} bits, {:.4f}", report.rtn_bits, rtn / count);
  text += fmt::format("\nproduct with one row: {:.3f} ns a weight by tables", report.bcq_ns);
  if (report.packed_ns > 0) {
    text += fmt::format(", {:.3f} by {}; binary codes {} here", report.packed_ns, report.packed_kernel,
                        report.bcq_ns < report.packed_ns ? "pay" : "do not pay");
  }
  return text + "\n";
}

}  // namespace hone
