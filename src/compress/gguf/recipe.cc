// See recipe.h.
#include "compress/gguf/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <sstream>

#include "compress/gguf/block_quantizers.h"
#include "compress/gguf/mixture.h"
#include "kernels/dequantize/dequantize.h"

namespace hone {
namespace {

constexpr int64_t kTriedRows = 48;
constexpr DType kCandidates[] = {DType::kQ2_K, DType::kQ3_K, DType::kIQ4_XS, DType::kIQ4_NL, DType::kQ4_0, DType::kQ4_K,
                                 DType::kQ5_0, DType::kQ5_K, DType::kQ5_1,   DType::kQ6_K,   DType::kQ8_0};

struct Point {
  DType type;
  uint64_t bytes = 0;
  double cost = 0;
};

// The candidates that a line from smaller to larger bends down at: more bytes for ever smaller gains.
std::vector<Point> LowerHull(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.cost < b.cost;
  });
  const auto slope = [](const Point& a, const Point& b) {
    return (b.cost - a.cost) / static_cast<double>(b.bytes - a.bytes);
  };
  std::vector<Point> hull;
  for (const Point& point : points) {
    if (!hull.empty() && (point.bytes == hull.back().bytes || point.cost >= hull.back().cost)) continue;
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), point)) hull.pop_back();
    hull.push_back(point);
  }
  return hull;
}

class Meter {
 public:
  Meter(const TensorSource& source, const Imatrix* imatrix, const Runtime& runtime)
      : source_(source), imatrix_(imatrix), runtime_(runtime) {
    for (const TensorInfo& tensor : source.tensors()) layers_ += tensor.name.ends_with(".attn_output.weight");
  }

  std::vector<Point> Points(size_t index) const {
    const TensorInfo& info = source_.tensors()[index];
    const int64_t n = info.shape.back(), rows = info.shape.rows(), count = std::min(rows, kTriedRows);
    const int64_t matrix_rows = info.shape[info.shape.rank() - 2];
    std::vector<float> importance;
    if (imatrix_ != nullptr) {
      const auto found = imatrix_->entries.find(info.name);
      if (found != imatrix_->entries.end() && found->second.columns == n &&
          found->second.matrices() == rows / matrix_rows)
        importance = Imatrix::Importance(found->second);
    }
    std::vector<Point> points;
    for (const DType type : kCandidates) {
      if (n % Info(type).block_elements == 0) points.push_back({type, BytesFor(type, info.shape.elements()), 0});
    }
    if (points.empty() && info.type == DType::kF32) return {{DType::kF16, BytesFor(DType::kF16, info.shape.elements()), 0}};
    if (points.empty()) return points;
    std::vector<std::vector<double>> errors(points.size() + 1, std::vector<double>(count));
    runtime_.threads->ParallelFor(static_cast<size_t>(count), 1, [&](size_t begin, size_t end) {
      std::vector<float> row(n), back(n);
      std::vector<std::byte> bytes(n * 2 + 512);
      for (size_t i = begin; i < end; ++i) {
        const int64_t r = static_cast<int64_t>(i) * rows / count;
        source_.ReadRows(index, r, 1, DType::kF32, reinterpret_cast<std::byte*>(row.data()));
        const float* weights = importance.empty() ? nullptr : importance.data() + r / matrix_rows * n;
        for (size_t p = 0; p <= points.size(); ++p) {
          if (p == points.size()) {
            std::fill(back.begin(), back.end(), 0.0f);
          } else {
            QuantizeRow(points[p].type, runtime_.isa, row.data(), n, weights, bytes.data());
            DequantizeRow(points[p].type, bytes.data(), n, back.data());
          }
          double error = 0;
          for (int64_t j = 0; j < n; ++j) {
            const double e = double{back[j]} - row[j];
            error += (weights != nullptr ? weights[j] : 1.0f) * e * e;
          }
          errors[p][i] = error;
        }
      }
    });
    double power = 0;
    for (const double e : errors.back()) power += e;
    for (size_t p = 0; p < points.size(); ++p) {
      double error = 0;
      for (const double e : errors[p]) error += e;
      points[p].cost = power > 0 && std::isfinite(error) ? error / power : 0;
    }
    return points;
  }

  // What an error of this tensor weighs where nobody has measured it: one of the embedding or the output reaches every logit
  // at full size, one of a layer's matrices is one of many that add to the stream.
  double Weight(const std::string& name) const { return name.starts_with("blk.") ? 1 : std::max(1, layers_); }

 private:
  const TensorSource& source_;
  const Imatrix* imatrix_;
  const Runtime& runtime_;
  int layers_ = 0;
};

}  // namespace

bool FitsPattern(std::string_view pattern, std::string_view name) {
  // The usual two pointers: back to the last star when something differs.
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<void> ForRecipeLines(const std::string& text, const std::string& origin,
                            const std::function<Result<void>(int line, const std::string& pattern, std::string word)>& fn) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // which some editors put before UTF-8
  std::istringstream in(text.starts_with(kMark) ? text.substr(kMark.size()) : text);
  std::string line;
  bool any = false;
  for (int number = 1; std::getline(in, line); ++number) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string pattern, word, more;
    if (!(words >> pattern)) continue;
    if (!(words >> word) || words >> more)
      return InvalidInput(fmt::format("{}: line {}: wanted a pattern and a type, found '{:.60}'", origin, number, line));
    any = true;
    HONE_RETURN_IF_ERROR(fn(number, pattern, word));
  }
  if (!any) return InvalidInput(origin + ": no lines; wanted 'PATTERN TYPE' on each");
  return {};
}

Result<std::vector<RecipeLine>> ParseRecipe(const std::string& text, const std::string& origin) {
  std::vector<RecipeLine> lines;
  HONE_RETURN_IF_ERROR(ForRecipeLines(text, origin, [&](int number, const std::string& pattern, std::string type) -> Result<void> {
    std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::toupper(c); });
    const auto found = DTypeFromName(type);
    const bool plain = found && (*found == DType::kF16 || *found == DType::kF32 || *found == DType::kBF16);
    if (!found || (!plain && !CanQuantize(*found))) {
      std::string known = "F32, F16, BF16";
      for (const DType t : QuantizableTypes()) known += ", " + std::string(Info(t).name);
      return InvalidInput(fmt::format("{}: line {}: type '{:.60}'; wanted one of {}", origin, number, type, known));
    }
    lines.push_back({pattern, *found, number});
    return {};
  }));
  return lines;
}

Result<std::map<std::string, DType>> ApplyRecipe(const std::vector<RecipeLine>& lines, const TensorSource& source,
                                                 const std::string& origin) {
  std::map<std::string, DType> types;
  std::string refused;
  for (const RecipeLine& line : lines) {
    bool any = false;
    for (const TensorInfo& tensor : source.tensors()) {
      if (!FitsPattern(line.pattern, tensor.name) || !IsQuantizable(tensor)) continue;
      any = true;
      if (tensor.shape.back() % Info(line.type).block_elements != 0) {
        refused += fmt::format("\n  line {}: {} {}: rows are no multiple of {}'s block of {}", line.line, tensor.name,
                               tensor.shape.ToString(), Info(line.type).name, Info(line.type).block_elements);
      }
      types[tensor.name] = line.type;
    }
    if (!any)
      return InvalidInput(fmt::format("{}: line {}: no matrix is called '{:.60}'", origin, line.line, line.pattern));
  }
  if (!refused.empty()) return Unsupported(origin + ":" + refused);
  return types;
}

std::map<std::string, DType> ProbeTypes(const TensorSource& source) {
  std::map<std::string, DType> types;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!IsQuantizable(tensor)) continue;
    for (const DType type : {DType::kQ3_K, DType::kQ4_0}) {
      if (tensor.shape.back() % Info(type).block_elements != 0) continue;
      types[tensor.name] = type;
      break;
    }
  }
  return types;
}

namespace {

double CostOf(const std::vector<Point>& points, DType type) {
  for (const Point& point : points) {
    if (point.type == type) return point.cost;
  }
  return 0;
}

// What a relative error of each tensor costs.
std::vector<double> Prices(const TensorSource& source, const Meter& meter, const Sensitivity* sensitivity,
                           const std::vector<std::vector<Point>>& points) {
  std::vector<double> prices(points.size());
  if (sensitivity == nullptr || sensitivity->groups.empty()) {
    for (size_t i = 0; i < prices.size(); ++i) prices[i] = meter.Weight(source.tensors()[i].name);
    return prices;
  }
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < points.size(); ++i) index[source.tensors()[i].name] = i;
  const std::map<std::string, DType> probes = ProbeTypes(source);
  double sum = 0, priced = 0;
  for (const SensitivityGroup& group : sensitivity->groups) {
    double errors = 0;
    for (const std::string& name : group.tensors) errors += CostOf(points[index.at(name)], probes.at(name));
    constexpr double kNoise = 1e-7;  // so that nothing is free
    const double price = errors > 0 ? std::max(kNoise, group.divergence) / errors : 0;
    for (const std::string& name : group.tensors) prices[index.at(name)] = price;
    sum += price * static_cast<double>(group.tensors.size());
    priced += static_cast<double>(group.tensors.size());
  }
  for (double& price : prices) {
    if (price == 0) price = priced > 0 ? sum / priced : 1;  // what no group has: as the others
  }
  return prices;
}

}  // namespace

Result<MixedChoice> ChooseMixed(const TensorSource& source, const Imatrix* imatrix, const Sensitivity* sensitivity,
                                uint64_t bytes, const Runtime& runtime, const std::map<std::string, DType>& fixed) {
  const Meter meter(source, imatrix, runtime);
  MixedChoice choice;
  std::vector<std::vector<Point>> hulls(source.tensors().size());
  for (size_t i = 0; i < hulls.size(); ++i) {
    if (IsQuantizable(source.tensors()[i])) hulls[i] = meter.Points(i);
    source.Release(i);
  }
  const std::vector<double> prices = Prices(source, meter, sensitivity, hulls);
  for (size_t i = 0; i < hulls.size(); ++i) {
    const TensorInfo& info = source.tensors()[i];
    if (const auto type = fixed.find(info.name); type != fixed.end())  // what it costs is no matter of choice
      hulls[i] = {{type->second, BytesFor(type->second, info.shape.elements()), CostOf(hulls[i], type->second)}};
    for (Point& point : hulls[i]) point.cost *= prices[i];
    hulls[i] = LowerHull(std::move(hulls[i]));
  }
  struct Offer {
    double gain;  // cost saved a byte
    size_t tensor, point;
    bool operator<(const Offer& other) const { return gain < other.gain; }
  };
  std::priority_queue<Offer> steps;
  const auto offer = [&](size_t tensor, size_t point) {  // from `point` to the next of the hull
    const auto& hull = hulls[tensor];
    if (point + 1 >= hull.size()) return;
    steps.push({(hull[point].cost - hull[point + 1].cost) /
                    static_cast<double>(hull[point + 1].bytes - hull[point].bytes),
                tensor, point});
  };
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const TensorInfo& info = source.tensors()[i];
    if (hulls[i].empty()) {
      choice.bytes += info.bytes();
      continue;
    }
    choice.bytes += hulls[i].front().bytes;
    choice.cost += hulls[i].front().cost;
    choice.types[info.name] = hulls[i].front().type;
    offer(i, 0);
  }
  if (choice.bytes > bytes) {
    return UsageError(fmt::format("{}: the smallest types{} take {} bytes, the budget is {}; give more", source.path(),
                                  fixed.empty() ? "" : " beside those that are given", choice.bytes, bytes));
  }
  while (!steps.empty()) {
    const Offer step = steps.top();
    steps.pop();
    const Point &from = hulls[step.tensor][step.point], &to = hulls[step.tensor][step.point + 1];
    if (choice.bytes + (to.bytes - from.bytes) > bytes) continue;  // a smaller step of another tensor may still fit
    choice.bytes += to.bytes - from.bytes;
    choice.cost -= from.cost - to.cost;
    choice.types[source.tensors()[step.tensor].name] = to.type;
    offer(step.tensor, step.point + 1);
  }
  return choice;
}

}  // namespace hone
