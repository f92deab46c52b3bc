// See rewrite_folder.h.
#include "compress/folder/rewrite_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compress/folder/folder_linears.h"
#include "compress/folder/kept_modules.h"
#include "compress/folder/quantized_input.h"
#include "models/family.h"
#include "models/model.h"
#include "models/quantized/integer_matrix.h"
#include "models/quantized/quantized_folder.h"

namespace hone {
namespace {

const IntegerMatrix* Integers(const QuantizedMatrix& matrix) { return dynamic_cast<const IntegerMatrix*>(&matrix); }

// Calls fn(row, group) until it returns false.
template <typename Fn>
bool ForGroups(const IntegerMatrix& m, Fn fn) {
  for (int64_t r = 0; r < m.rows(); ++r) {
    for (int64_t g = 0; g < m.groups(); ++g) {
      if (!fn(r, g)) return false;
    }
  }
  return true;
}

bool IsSymmetric(const IntegerMatrix& m) {
  return ForGroups(m, [&](int64_t r, int64_t g) { return m.Zero(r, g) == 1 << (m.bits() - 1); });
}

}  // namespace

const std::vector<std::string>& FolderRewrite::Formats() {
  static const std::vector<std::string> formats = {"gptq", "gptq-v2", "awq", "compressed-tensors", "safetensors"};
  return formats;
}

Result<std::unique_ptr<FolderRewrite>> FolderRewrite::Make(const Checkpoint& checkpoint, const std::string& format, DType plain,
                                                           const Runtime& runtime) {
  std::unique_ptr<FolderRewrite> rewrite(new FolderRewrite(checkpoint, format, plain, runtime));
  HONE_RETURN_IF_ERROR(rewrite->FindMatrices());
  HONE_RETURN_IF_ERROR(format == "safetensors" ? rewrite->PlanPlain() : rewrite->PlanCodes());
  return rewrite;
}

Result<void> FolderRewrite::FindMatrices() {
  HONE_TRY(const Family* family, FindFamily(checkpoint_));
  HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint_));
  HONE_TRY(map_, WeightMap::Make(checkpoint_, *family, config));
  std::set<std::string> seen;
  for (const Weight& weight : map_.weights()) {
    if (weight.view.shape.rank() != 2 || weight.name == "token_embd.weight" || !seen.insert(weight.file_name).second) continue;
    const std::string module = weight.file_name.substr(0, weight.file_name.size() - kWeightSuffix.size());
    if (weight.quantized == nullptr) {
      kept_.push_back(module);
      continue;
    }
    for (const NamedTensor* tensor : weight.quantized->tensors()) dropped_.insert(tensor->name);
    output_quantized_ = output_quantized_ || weight.name == "output.weight";
    weights_ += static_cast<uint64_t>(weight.quantized->rows() * weight.quantized->columns());
    matrices_.push_back({module, weight.quantized, {}});
  }
  if (matrices_.empty()) return InvalidInput(checkpoint_.path() + ": none of its matrices is quantised");
  return CheckPartsAreKnown(checkpoint_, dropped_);
}

Result<void> FolderRewrite::PlanPlain() {
  for (size_t i = 0; i < matrices_.size(); ++i) {
    Matrix& matrix = matrices_[i];
    matrix.outputs = {{matrix.module + std::string(kWeightSuffix), plain_, Shape{matrix.from->rows(), matrix.from->columns()}}};
    where_[matrix.outputs[0].name] = {i, 0};
    tensors_.push_back(matrix.outputs[0]);
  }
  return {};
}

Error FolderRewrite::Refuse(const Matrix& matrix, const std::string& why) const {
  return Unsupported(fmt::format("{} is {}, which {} cannot hold exactly: {}. Wanted a format that can, or --format safetensors "
                                 "(dequantised); hone quantize makes {} from the original model",
                                 matrix.from->where(), matrix.from->stored(),
                                 format_name_ == "compressed-tensors" ? "compressed-tensors' pack-quantized form" : format_name_, why,
                                 format_name_));
}

Result<std::string> SaidBesideMatrices(const JsonConfig& quantization) {
  std::string lost;
  if (quantization.IsObject("kv_cache_scheme")) lost = "the scales of the KV cache (kv_cache_scheme)";
  if (quantization.IsObject("config_groups")) {
    HONE_TRY(const JsonConfig groups, quantization.Object("config_groups"));
    for (const std::string& name : groups.Keys()) {
      HONE_TRY(const JsonConfig group, groups.Object(name));
      if (group.IsObject("input_activations")) lost = "the rounding of activations (input_activations)";
    }
  }
  return lost;
}

Result<void> FolderRewrite::CheckCodes(const Matrix& matrix) const {
  const IntegerMatrix* m = Integers(*matrix.from);
  const IntegerMatrix& first = *Integers(*matrices_.front().from);
  const bool gptq = writes_gptq(), awq = format_name_ == "awq";
  if (m == nullptr) return Refuse(matrix, "only whole numbers with a scale and a zero point a group are packed anew");
  const int bits = m->bits();
  if (awq ? bits != 4 : gptq && bits != 2 && bits != 3 && bits != 4 && bits != 8)
    return Refuse(matrix, fmt::format("it holds {} bits, not {}", awq ? "4" : "2, 3, 4 or 8", bits));
  if (bits != first.bits()) return Refuse(matrix, fmt::format("other matrices have {} bits, and it holds one width", first.bits()));
  if (!gptq && !m->groups_are_stretches()) return Refuse(matrix, "its groups are not stretches of columns (g_idx)");
  const int64_t group = scheme_.group > 0 ? scheme_.group : m->columns();
  if (m->group() != group || m->groups() * group != m->columns()) {
    return Refuse(matrix, fmt::format("{} columns in {} groups of {} beside groups of {} elsewhere, and it holds one size that divides "
                                      "the columns", m->columns(), m->groups(), m->group(), group));
  }
  std::string why;
  ForGroups(*m, [&](int64_t r, int64_t g) {
    const float scale = m->Scale(r, g);
    if (!std::isfinite(scale)) {
      why = fmt::format("the scale of row {}, group {} is {}; the file is damaged", r, g, scale);
    } else if (RoundTo(scale_type_, scale) != scale) {
      why = fmt::format("the scale of row {}, group {} is {:g}, no {} number", r, g, scale, Info(scale_type_).name);
    } else if (format_name_ == "gptq" && m->Zero(r, g) == 0) {
      why = fmt::format("the zero point of row {}, group {} is 0, and version 1 stores one less", r, g);
    }
    return why.empty();
  });
  if (!why.empty()) return Refuse(matrix, why);
  return {};
}

Result<void> FolderRewrite::PlanCodes() {
  for (const Matrix& matrix : matrices_) {
    if (Integers(*matrix.from) == nullptr) return CheckCodes(matrix);
  }
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (checkpoint_.config() == nullptr || !checkpoint_.config()->IsObject(key)) continue;
    HONE_TRY(const JsonConfig said, checkpoint_.config()->Object(key));
    HONE_TRY(const std::string lost, SaidBesideMatrices(said));
    if (!lost.empty()) return Refuse(matrices_.front(), lost + " would be lost");
  }
  const auto all = [&](auto holds) {
    return std::all_of(matrices_.begin(), matrices_.end(), [&](const Matrix& matrix) { return holds(*Integers(*matrix.from)); });
  };
  const IntegerMatrix& first = *Integers(*matrices_.front().from);
  scheme_.method = "gptq";
  scheme_.format = writes_gptq() ? "gptq" : format_name_;
  scheme_.bits = first.bits();
  scheme_.group = 0;  // whole rows, unless some are cut
  for (const Matrix& matrix : matrices_) {
    const IntegerMatrix& m = *Integers(*matrix.from);
    if (m.groups() > 1) scheme_.group = std::max(scheme_.group, m.group());
  }
  scheme_.order = all([](const IntegerMatrix& m) { return m.groups_are_stretches(); }) ? "natural" : "activation";
  scheme_.symmetric = format_name_ != "awq" && all(IsSymmetric);
  scheme_.zeros_version = format_name_ == "gptq" ? 1 : 2;
  if (format_name_ == "compressed-tensors") scale_type_ = first.scale_type();
  if (format_name_ == "awq" && output_quantized_) return Refuse(matrices_.front(), "the output matrix is quantised too");
  for (const Matrix& matrix : matrices_) HONE_RETURN_IF_ERROR(CheckCodes(matrix));
  HONE_TRY(format_, MakeLinearFormat(scheme_));
  for (size_t i = 0; i < matrices_.size(); ++i) {
    Matrix& matrix = matrices_[i];
    if (const Result<void> fits = format_->Check(matrix.from->rows(), matrix.from->columns()); !fits)
      return Refuse(matrix, fits.error().message);
    matrix.outputs = format_->Outputs(matrix.module, matrix.from->rows(), matrix.from->columns(), scale_type_);
    for (size_t j = 0; j < matrix.outputs.size(); ++j) where_[matrix.outputs[j].name] = {i, j};
    tensors_.insert(tensors_.end(), matrix.outputs.begin(), matrix.outputs.end());
  }
  SayConfig();
  return {};
}

// Modules that are kept, beside an output matrix, as each format names them.
void FolderRewrite::SayConfig() {
  quantization_ = NameKeptModules(format_->ConfigJson(scale_type_), format_name_, kept_, output_quantized_);
}

Result<std::span<const std::byte>> FolderRewrite::Bytes(const std::string& tensor, RoundingCount* tally) {
  const auto found = where_.find(tensor);
  HONE_CHECK(found != where_.end());
  const auto [matrix, output] = found->second;
  if (encoded_ != matrix) {
    encoded_ = ~size_t{0};
    outputs_.clear();
    for (const TensorInfo& info : matrices_[matrix].outputs) outputs_.emplace_back(info.bytes());
    HONE_RETURN_IF_ERROR(format_ == nullptr ? EncodePlain(matrices_[matrix], tally) : EncodeCodes(matrices_[matrix]));
    matrices_[matrix].from->Release(checkpoint_);
    encoded_ = matrix;
  }
  return std::span<const std::byte>(outputs_[output]);
}

Result<void> FolderRewrite::EncodePlain(const Matrix& matrix, RoundingCount* tally) {
  const int64_t rows = matrix.from->rows(), columns = matrix.from->columns();
  std::vector<float> w(static_cast<size_t>(16 * columns));
  for (int64_t r = 0; r < rows; r += 16) {
    const int64_t count = std::min<int64_t>(16, rows - r);
    matrix.from->Decode(r, count, w.data());
    const uint64_t before = tally->not_finite;
    for (int64_t i = 0; i < count * columns; ++i) tally->not_finite += std::isfinite(w[i]) ? 0 : 1;
    if (tally->not_finite > before) {
      return InvalidInput(fmt::format("{}: a weight of rows {} to {} is NaN or infinite; the file is damaged, or was made from such a "
                                      "model", matrix.from->where(), r, r + count - 1));
    }
    ConvertRows({DType::kF32, Shape{count, columns}, reinterpret_cast<const std::byte*>(w.data())}, 0, count, false, plain_,
                outputs_[0].data() + static_cast<size_t>(r) * BytesFor(plain_, columns), tally);
  }
  return {};
}

Result<void> FolderRewrite::EncodeCodes(const Matrix& matrix) {
  const IntegerMatrix& m = *Integers(*matrix.from);
  const int64_t rows = m.rows(), columns = m.columns(), groups = m.groups();
  std::vector<uint8_t> codes(static_cast<size_t>(rows * columns));
  std::vector<Grid> grids(static_cast<size_t>(rows * groups));
  std::vector<int32_t> group_of(columns);
  for (int64_t i = 0; i < columns; ++i) group_of[i] = static_cast<int32_t>(m.GroupOf(i));
  runtime_.threads->ParallelFor(static_cast<size_t>(rows), 16, [&](size_t begin, size_t end) {
    const int64_t first = static_cast<int64_t>(begin), last = static_cast<int64_t>(end);
    m.ReadCodes(first, last - first, codes.data() + first * columns);
    for (int64_t r = first; r < last; ++r) {
      for (int64_t g = 0; g < groups; ++g) grids[r * groups + g] = {m.Scale(r, g), static_cast<float>(m.Zero(r, g))};
    }
  });
  format_->EncodeCodes({rows, columns, scale_type_, codes, grids, group_of}, outputs_, *runtime_.threads);

  // Both readers must see the same numbers.
  const std::vector<std::span<const std::byte>> written(outputs_.begin(), outputs_.end());
  std::vector<uint8_t> same(static_cast<size_t>(rows), 0);
  runtime_.threads->ParallelFor(static_cast<size_t>(rows), 16, [&](size_t begin, size_t end) {
    const int64_t first = static_cast<int64_t>(begin), count = static_cast<int64_t>(end - begin);
    std::vector<float> before(static_cast<size_t>(count * columns)), after(before.size());
    m.Decode(first, count, before.data());
    format_->Decode(written, rows, columns, scale_type_, first, count, after.data());
    for (int64_t r = 0; r < count; ++r)
      same[begin + r] = std::equal(&before[r * columns], &before[r * columns] + columns, &after[r * columns]);
  });
  for (int64_t r = 0; r < rows; ++r) {
    if (same[r] == 0) return Error{ErrorCode::kInternal, fmt::format("{}: row {} does not read back as it was", m.where(), r)};
  }
  return {};
}

}  // namespace hone
