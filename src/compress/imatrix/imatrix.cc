// The GGUF form goes through formats/gguf.h; the old form is read here with a cursor that never leaves the file.
#include "compress/imatrix/imatrix.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/memory.h"
#include "formats/file_kind.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace hone {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
// The file's format names no limit; these are far above any model and keep a hostile file from asking for memory.
constexpr int32_t kMaxEntries = 1 << 20, kMaxName = 1 << 12, kMaxColumns = 1 << 28;

Result<void> CheckNumbers(const std::string& path, const std::string& name, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] >= 0) continue;
    return InvalidInput(
        fmt::format("{}: {}: number {} is {}, wanted a finite number that is not negative; collect it again", path,
                    name, i, values[i]));
  }
  return {};
}

std::vector<float> FloatsOf(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.shape.elements()));
  if (!values.empty()) std::memcpy(values.data(), view.data, values.size() * sizeof(float));
  return values;
}

Result<Imatrix> ReadGgufForm(const std::string& path) {
  HONE_TRY(const auto file, GgufFile::Open(path));
  HONE_TRY(const std::string type, file->String("general.type", ""));
  if (type != "imatrix") {
    return InvalidInput(
        fmt::format("{}: general.type is '{}', wanted 'imatrix': this is no importance matrix", path, Printable(type)));
  }
  Imatrix imatrix;
  if (file->Has("imatrix.datasets")) {
    HONE_TRY(const auto datasets, file->Strings("imatrix.datasets"));
    imatrix.datasets.assign(datasets.begin(), datasets.end());
  }
  HONE_TRY(const int64_t chunks, file->Int("imatrix.chunk_count", 0));
  HONE_TRY(const int64_t chunk_tokens, file->Int("imatrix.chunk_size", 0));
  if (chunks < 0 || chunks > UINT32_MAX || chunk_tokens < 0 || chunk_tokens > UINT32_MAX) {
    return InvalidInput(path + ": imatrix.chunk_count or imatrix.chunk_size is out of range");
  }
  imatrix.chunks = static_cast<uint32_t>(chunks);
  imatrix.chunk_tokens = static_cast<uint32_t>(chunk_tokens);
  for (const NamedTensor& tensor : file->tensors()) {
    if (tensor.name.ends_with(kCounts)) {
      const std::string sums = tensor.name.substr(0, tensor.name.size() - kCounts.size()) + std::string(kSums);
      if (file->FindTensor(sums) == nullptr)
        return InvalidInput(fmt::format("{}: {} has no {}", path, tensor.name, sums));
      continue;
    }
    if (!tensor.name.ends_with(kSums))
      return InvalidInput(fmt::format("{}: {}: wanted names that end in {} or {}", path, tensor.name, kSums, kCounts));
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const NamedTensor* counts = file->FindTensor(name + std::string(kCounts));
    if (counts == nullptr) return InvalidInput(fmt::format("{}: {} has no {}{}", path, tensor.name, name, kCounts));
    const Shape &shape = tensor.view.shape, &count_shape = counts->view.shape;
    const int64_t columns = shape.back(), matrices = columns > 0 ? shape.elements() / columns : 0;
    if (tensor.view.type != DType::kF32 || counts->view.type != DType::kF32 || columns < 1 || matrices < 1 ||
        count_shape.elements() != matrices) {
      return InvalidInput(fmt::format(
          "{}: {}: {} {} and counts {} {}, wanted F32 [matrices, columns] and a count a matrix", path, name,
          Info(tensor.view.type).name, shape.ToString(), Info(counts->view.type).name, count_shape.ToString()));
    }
    ImatrixEntry entry{columns, FloatsOf(tensor.view), FloatsOf(counts->view)};
    HONE_RETURN_IF_ERROR(CheckNumbers(path, tensor.name, entry.sums));
    HONE_RETURN_IF_ERROR(CheckNumbers(path, counts->name, entry.counts));
    imatrix.entries.emplace(name, std::move(entry));
  }
  if (imatrix.entries.empty()) return InvalidInput(path + ": an importance matrix without entries");
  return imatrix;
}

class OldForm {
 public:
  OldForm(std::string path, std::span<const std::byte> bytes) : path_(std::move(path)), bytes_(bytes) {}

  Result<Imatrix> Read() {
    HONE_TRY(const int32_t count, Number("the number of entries", 1, kMaxEntries));
    Imatrix imatrix;
    for (int32_t i = 0; i < count; ++i) {
      HONE_TRY(const std::string name, Text(fmt::format("the name of entry {}", i), 1));
      const std::string shown = Printable(name);
      HONE_TRY(const int32_t calls, Number(shown + ": the number of calls", 0, INT32_MAX));
      HONE_TRY(const int32_t columns, Number(shown + ": the number of columns", 1, kMaxColumns));
      if (bytes_.size() / sizeof(float) < static_cast<size_t>(columns)) return Short(shown + ": its numbers");
      ImatrixEntry entry{columns, std::vector<float>(columns), {static_cast<float>(calls)}};
      std::memcpy(entry.sums.data(), bytes_.data(), columns * sizeof(float));
      bytes_ = bytes_.subspan(columns * sizeof(float));
      HONE_RETURN_IF_ERROR(CheckNumbers(path_, shown, entry.sums));
      if (!imatrix.entries.emplace(name, std::move(entry)).second)
        return InvalidInput(path_ + ": " + shown + " is there twice");
    }
    if (bytes_.empty()) return imatrix;  // the oldest files end here
    HONE_TRY(const int32_t chunks, Number("the number of chunks", 0, INT32_MAX));
    imatrix.chunks = static_cast<uint32_t>(chunks);
    HONE_TRY(const std::string dataset, Text("the name of the data", 0));
    imatrix.datasets.push_back(dataset);
    return imatrix;
  }

 private:
  Error Short(const std::string& what) const {
    return InvalidInput(path_ + ": the file ends before " + what + "; neither GGUF nor a whole imatrix .dat");
  }
  Result<int32_t> Number(const std::string& what, int32_t low, int32_t high) {
    int32_t value = 0;
    if (bytes_.size() < sizeof(value)) return Short(what);
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_ = bytes_.subspan(sizeof(value));
    if (value < low || value > high) {
      return InvalidInput(fmt::format("{}: {} is {}, wanted {} to {}; neither GGUF nor an imatrix .dat", path_, what,
                                      value, low, high));
    }
    return value;
  }
  Result<std::string> Text(const std::string& what, int32_t shortest) {
    HONE_TRY(const int32_t length, Number("the length of " + what, shortest, kMaxName));
    if (bytes_.size() < static_cast<size_t>(length)) return Short(what);
    std::string text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return text;
  }

  const std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<float> Imatrix::Importance(const ImatrixEntry& entry) {
  std::vector<float> values(entry.sums.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float count = entry.counts[i / entry.columns];
    values[i] = count > 0 ? entry.sums[i] / count : 1.0f;
  }
  return values;
}

Result<Imatrix> ReadImatrix(const std::string& path) {
  HONE_TRY(const auto file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) return ReadGgufForm(path);
  return OldForm(path, bytes).Read();
}

Result<void> WriteImatrix(const std::string& path, const Imatrix& imatrix) {
  std::vector<std::pair<std::string, GgufValue>> metadata = {
      {"general.type", GgufValue::String("imatrix")},
      {"imatrix.datasets", GgufValue::Strings(imatrix.datasets)},
      {"imatrix.chunk_count", GgufValue::U32(imatrix.chunks)},
      {"imatrix.chunk_size", GgufValue::U32(imatrix.chunk_tokens)}};
  std::vector<TensorInfo> tensors;
  for (const auto& [name, entry] : imatrix.entries) {
    tensors.push_back({name + std::string(kSums), DType::kF32, Shape{entry.matrices(), entry.columns}});
    tensors.push_back({name + std::string(kCounts), DType::kF32, Shape{entry.matrices(), 1}});
  }
  HONE_TRY(const auto writer, GgufWriter::Create(path, metadata, tensors));
  for (const auto& [name, entry] : imatrix.entries) {
    HONE_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(entry.sums))));
    HONE_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(entry.counts))));
  }
  return writer->Commit();
}

}  // namespace hone
