// The writing side of GGUF: checks, header, then data. A file read by GgufFile and written here has the same bytes, if
// it was version 3.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "formats/file_kind.h"
#include "formats/gguf.h"
#include "formats/gguf_part.h"
#include "formats/gguf_split.h"
#include "formats/gguf_writer.h"

namespace hone {
namespace {

using Metadata = std::vector<std::pair<std::string, GgufValue>>;

template <typename T>
void Put(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}
void PutString(std::string_view text, std::string* out) {
  Put<uint64_t>(text.size(), out);
  out->append(text);
}

// Stored is the file's type, Held the widened one. False if the value does not fit.
template <typename Stored, typename Held>
bool PutNumber(Held value, std::string* out) {
  if constexpr (std::is_integral_v<Stored>) {
    if (value < static_cast<Held>(std::numeric_limits<Stored>::min()) ||
        value > static_cast<Held>(std::numeric_limits<Stored>::max())) {
      return false;
    }
  } else {
    // A double beyond the float's range would become infinite; infinities and NaN themselves pass.
    if (std::isfinite(value) && std::abs(value) > static_cast<double>(std::numeric_limits<Stored>::max())) return false;
  }
  Put<Stored>(static_cast<Stored>(value), out);
  return true;
}

// One value, or every element of an array. False if `value` does not hold what `type` says, or it does not fit.
template <typename Stored, typename Held>
bool PutNumbers(const GgufValue& value, std::string* out) {
  if (value.type != GgufType::kArray) {
    const Held* number = std::get_if<Held>(&value.value);
    return number != nullptr && PutNumber<Stored, Held>(*number, out);
  }
  const auto* numbers = std::get_if<std::vector<Held>>(&value.value);
  if (numbers == nullptr) return false;
  Put<uint64_t>(numbers->size(), out);
  return std::all_of(numbers->begin(), numbers->end(),
                     [&](Held number) { return PutNumber<Stored, Held>(number, out); });
}

bool PutBools(const GgufValue& value, std::string* out) {
  if (value.type != GgufType::kArray) {
    const bool* bit = std::get_if<bool>(&value.value);
    if (bit != nullptr) out->push_back(*bit ? 1 : 0);
    return bit != nullptr;
  }
  const auto* bits = std::get_if<std::vector<bool>>(&value.value);
  if (bits == nullptr) return false;
  Put<uint64_t>(bits->size(), out);
  for (const bool bit : *bits) out->push_back(bit ? 1 : 0);
  return true;
}

bool PutStrings(const GgufValue& value, std::string* out) {
  if (value.type != GgufType::kArray) {
    const std::string* text = std::get_if<std::string>(&value.value);
    if (text != nullptr) PutString(*text, out);
    return text != nullptr;
  }
  const auto* texts = std::get_if<std::vector<std::string>>(&value.value);
  if (texts == nullptr) return false;
  Put<uint64_t>(texts->size(), out);
  for (const std::string& text : *texts) PutString(text, out);
  return true;
}

bool PutValue(const GgufValue& value, std::string* out) {
  Put<uint32_t>(static_cast<uint32_t>(value.type), out);
  GgufType type = value.type;
  if (type == GgufType::kArray) {
    type = value.element_type;
    Put<uint32_t>(static_cast<uint32_t>(type), out);
  }
  switch (type) {
    case GgufType::kU8: return PutNumbers<uint8_t, uint64_t>(value, out);
    case GgufType::kU16: return PutNumbers<uint16_t, uint64_t>(value, out);
    case GgufType::kU32: return PutNumbers<uint32_t, uint64_t>(value, out);
    case GgufType::kU64: return PutNumbers<uint64_t, uint64_t>(value, out);
    case GgufType::kI8: return PutNumbers<int8_t, int64_t>(value, out);
    case GgufType::kI16: return PutNumbers<int16_t, int64_t>(value, out);
    case GgufType::kI32: return PutNumbers<int32_t, int64_t>(value, out);
    case GgufType::kI64: return PutNumbers<int64_t, int64_t>(value, out);
    case GgufType::kF32: return PutNumbers<float, double>(value, out);
    case GgufType::kF64: return PutNumbers<double, double>(value, out);
    case GgufType::kBool: return PutBools(value, out);
    case GgufType::kString: return PutStrings(value, out);
    case GgufType::kArray: break;
  }
  return false;
}

Result<uint64_t> PutMetadata(const std::string& path, const Metadata& metadata, std::string* out) {
  uint64_t alignment = kGgufDefaultAlignment;
  std::unordered_set<std::string_view> seen;
  for (const auto& [key, value] : metadata) {
    const std::string where = path + ": key '" + Printable(key) + "'";
    if (key.empty()) return InvalidInput(where + ": a metadata key is empty, wanted a name");
    if (!seen.insert(key).second) return InvalidInput(where + " is given twice, wanted once");
    PutString(key, out);
    if (!PutValue(value, out)) {
      return InvalidInput(where + ": its value does not fit its type, " + GgufTypeName(value) +
                          "; nested arrays cannot be written");
    }
    if (key != "general.alignment") continue;
    const uint64_t* number = std::get_if<uint64_t>(&value.value);
    if (value.type != GgufType::kU32 || number == nullptr || !std::has_single_bit(*number)) {
      return InvalidInput(where + " must be a u32 and a power of two");
    }
    alignment = *number;
  }
  return alignment;
}

// Empty if GGUF can hold the tensor, else why not.
std::string Refusal(const TensorInfo& tensor) {
  const DTypeInfo& info = Info(tensor.type);
  if (tensor.name.empty()) return "its name is empty";
  if (tensor.name.size() > kGgufMaxTensorName) {
    return "its name has " + std::to_string(tensor.name.size()) + " bytes, GGUF allows 63; shorten it";
  }
  if (info.ggml_id < 0) return "GGUF has no type " + std::string(info.name) + "; convert it to another type first";
  if (tensor.shape.rank() > static_cast<int>(kGgufMaxRank)) {
    return "it has shape " + tensor.shape.ToString() + ", GGUF allows four dimensions; reshape it";
  }
  if (tensor.shape.back() % info.block_elements != 0) {
    return "its rows of " + std::to_string(tensor.shape.back()) + " elements are no whole blocks of " +
           std::string(info.name) + " (" + std::to_string(info.block_elements) + " elements); use another type for it";
  }
  return "";
}

uint64_t Padded(uint64_t bytes, uint64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

bool IsSplitKey(std::string_view key) {
  return key == "split.no" || key == "split.count" || key == "split.tensors.count";
}

Metadata WithoutSplitKeys(const Metadata& metadata) {
  Metadata kept;
  for (const auto& item : metadata) {
    if (!IsSplitKey(item.first)) kept.push_back(item);
  }
  return kept;
}

bool IsPartOfSplit(const Metadata& metadata) {
  return std::any_of(metadata.begin(), metadata.end(), [](const auto& item) {
    const uint64_t* count = std::get_if<uint64_t>(&item.second.value);
    return item.first == "split.count" && (count == nullptr || *count > 1);
  });
}

using TensorRange = std::span<const NamedTensor>;

// Written and flushed, without its name yet.
Result<std::unique_ptr<GgufWriter>> WriteUnnamed(const std::string& path, const Metadata& metadata,
                                                 TensorRange tensors) {
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) infos.push_back({tensor.name, tensor.view.type, tensor.view.shape});
  HONE_TRY(std::unique_ptr<GgufWriter> writer, GgufWriter::Create(path, metadata, std::move(infos)));
  for (const NamedTensor& tensor : tensors) {
    HONE_RETURN_IF_ERROR(writer->Append({tensor.view.data, tensor.view.bytes()}));
  }
  HONE_RETURN_IF_ERROR(writer->Finish());
  return writer;
}

std::vector<TensorRange> CutIntoParts(TensorRange tensors, const GgufSplitLimits& limits) {
  std::vector<TensorRange> parts;
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t next = tensors[i].view.bytes();
    const bool too_many = limits.max_tensors > 0 && i - begin >= limits.max_tensors;
    const bool too_large = limits.max_bytes > 0 && bytes + next > limits.max_bytes;
    if (i > begin && (too_many || too_large)) {
      parts.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += next;
  }
  parts.push_back(tensors.subspan(begin));
  return parts;
}

}  // namespace

Result<std::unique_ptr<GgufWriter>> GgufWriter::Create(const std::string& path, const Metadata& metadata,
                                                       std::vector<TensorInfo> tensors) {
  std::string header = "GGUF";
  Put<uint32_t>(3, &header);
  Put<uint64_t>(tensors.size(), &header);
  Put<uint64_t>(metadata.size(), &header);
  std::unique_ptr<GgufWriter> writer(new GgufWriter());
  HONE_TRY(writer->alignment_, PutMetadata(path, metadata, &header));
  std::unordered_set<std::string_view> seen;
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::string why = Refusal(tensor);
    if (!why.empty()) return InvalidInput(path + ": cannot write tensor '" + Printable(tensor.name) + "': " + why);
    if (!seen.insert(tensor.name).second) {
      return InvalidInput(path + ": cannot write tensor '" + Printable(tensor.name) +
                          "': it is given twice, wanted once");
    }
    PutString(tensor.name, &header);
    Put<uint32_t>(static_cast<uint32_t>(tensor.shape.rank()), &header);
    for (int i = tensor.shape.rank(); i > 0; --i) Put<int64_t>(tensor.shape[i - 1], &header);
    Put<uint32_t>(static_cast<uint32_t>(Info(tensor.type).ggml_id), &header);
    Put<uint64_t>(offset, &header);
    offset += Padded(tensor.bytes(), writer->alignment_);
  }
  const uint64_t start = tensors.empty() ? header.size() : Padded(header.size(), writer->alignment_);
  writer->tensors_ = std::move(tensors);
  HONE_TRY(writer->file_, AtomicFile::Create(path, start + offset));
  HONE_RETURN_IF_ERROR(writer->file_->Write(header));
  HONE_RETURN_IF_ERROR(writer->file_->Zeros(start - header.size()));
  if (!writer->tensors_.empty()) writer->left_ = writer->tensors_[0].bytes();
  HONE_RETURN_IF_ERROR(writer->StepOver());
  return writer;
}

Result<void> GgufWriter::StepOver() {
  while (current_ < tensors_.size() && left_ == 0) {
    const uint64_t bytes = tensors_[current_].bytes();
    HONE_RETURN_IF_ERROR(file_->Zeros(Padded(bytes, alignment_) - bytes));
    if (++current_ < tensors_.size()) left_ = tensors_[current_].bytes();
  }
  return {};
}

Result<void> GgufWriter::Append(std::span<const std::byte> bytes) {
  HONE_CHECK(bytes.size() <= left_, "more bytes than the tensor has");
  HONE_RETURN_IF_ERROR(file_->Write(bytes));
  left_ -= bytes.size();
  return StepOver();
}

Result<void> GgufWriter::Finish() {
  HONE_CHECK(current_ == tensors_.size(), "a tensor's bytes are missing");
  return file_->Finish();
}

Result<void> GgufWriter::Commit() {
  HONE_RETURN_IF_ERROR(Finish());
  return file_->Rename();
}

Result<void> WriteGguf(const std::string& path, const GgufContents& contents) {
  const bool strip = IsPartOfSplit(contents.metadata);
  HONE_TRY(auto writer,
           WriteUnnamed(path, strip ? WithoutSplitKeys(contents.metadata) : contents.metadata, contents.tensors));
  return writer->Commit();
}

Result<std::vector<std::string>> WriteGgufSplit(const std::string& prefix, const GgufContents& contents,
                                                const GgufSplitLimits& limits) {
  const std::vector<TensorRange> parts = CutIntoParts(contents.tensors, limits);
  if (parts.size() > 65535) {
    return InvalidInput(prefix + ": the limits make " + std::to_string(parts.size()) +
                        " parts, a split has at most 65535; allow larger parts");
  }
  std::unordered_set<std::string_view> seen;  // a part cannot see the names of another
  for (const NamedTensor& tensor : contents.tensors) {
    if (seen.insert(tensor.name).second) continue;
    return InvalidInput(prefix + ": cannot write tensor '" + Printable(tensor.name) +
                        "': it is given twice, wanted once");
  }
  std::vector<std::string> paths;
  std::vector<std::unique_ptr<GgufWriter>> writers;
  for (size_t no = 0; no < parts.size(); ++no) {
    Metadata metadata;
    if (no == 0) metadata = WithoutSplitKeys(contents.metadata);
    metadata.emplace_back("split.no", GgufValue::U16(static_cast<uint16_t>(no)));
    metadata.emplace_back("split.count", GgufValue::U16(static_cast<uint16_t>(parts.size())));
    metadata.emplace_back("split.tensors.count", GgufValue::I32(static_cast<int32_t>(contents.tensors.size())));
    paths.push_back(prefix + GgufSplitSuffix(no, parts.size()));
    HONE_TRY(writers.emplace_back(), WriteUnnamed(paths.back(), metadata, parts[no]));
  }
  for (size_t no = parts.size(); no > 0; --no) HONE_RETURN_IF_ERROR(writers[no - 1]->Commit());
  return paths;
}

}  // namespace hone
