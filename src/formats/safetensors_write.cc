// The writing side of safetensors. The reference sorts by the rank of the dtype in its own list, falling, then by name,
// and pads the header with spaces to 8 bytes; so does this, and the bytes are the same.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <tuple>

#include "formats/file_kind.h"
#include "formats/safetensors.h"
#include "formats/safetensors_header.h"
#include "formats/safetensors_writer.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// The reference's order of dtypes, smallest first.
constexpr DType kRanks[] = {DType::kBOOL,        DType::kF4,      DType::kF6_E2M3, DType::kF6_E3M2, DType::kU8,
                            DType::kI8,          DType::kF8_E5M2, DType::kF8_E4M3, DType::kF8_E8M0, DType::kF8_E4M3FNUZ,
                            DType::kF8_E5M2FNUZ, DType::kI16,     DType::kU16,     DType::kF16,     DType::kBF16,
                            DType::kI32,         DType::kU32,     DType::kF32,     DType::kC64,     DType::kF64,
                            DType::kI64,         DType::kU64};

// -1 if safetensors has no such type.
int Rank(DType type) {
  const auto* it = std::find(std::begin(kRanks), std::end(kRanks), type);
  return it == std::end(kRanks) ? -1 : static_cast<int>(it - std::begin(kRanks));
}

// Length of the UTF-8 sequence that `text` begins with; 0 if it is not valid.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0, surrogate = first == 0xed && byte(1) >= 0xa0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90, beyond = first == 0xf4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// A JSON string with the fewest escapes. REQUIRES: IsUtf8(text).
void PutJson(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': *out += "\\\""; continue;
      case '\\': *out += "\\\\"; continue;
      case '\n': *out += "\\n"; continue;
      case '\r': *out += "\\r"; continue;
      case '\t': *out += "\\t"; continue;
      case '\b': *out += "\\b"; continue;
      case '\f': *out += "\\f"; continue;
      default: break;
    }
    if (static_cast<unsigned char>(c) >= 0x20) {
      *out += c;
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    *out += escaped;
  }
  *out += '"';
}

Result<std::string> HeaderText(const std::string& path, const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) {
        return InvalidInput(path + ": metadata '" + Printable(key) + "' is not UTF-8, which safetensors wants");
      }
      if (text.back() != '{') text += ',';
      PutJson(key, &text);
      text += ':';
      PutJson(value, &text);
    }
    text += '}';
  }
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    if (text.size() > 1) text += ',';
    PutJson(tensor.name, &text);
    text.append(":{\"dtype\":\"").append(Info(tensor.type).name).append("\",\"shape\":[");
    for (int i = 0; i < tensor.shape.rank(); ++i) text += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(offset);
    offset += tensor.bytes();
    text += "," + std::to_string(offset) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kSafetensorsMaxHeaderBytes) {
    return InvalidInput(path + ": its header would have " + std::to_string(text.size()) +
                        " bytes, readers refuse more than 100000000; write more, smaller shards");
  }
  return text;
}

// Empty if safetensors can hold the tensor, else why not.
std::string WhyNotWritten(const TensorInfo& tensor) {
  const DTypeInfo& info = Info(tensor.type);
  if (tensor.name == "__metadata__") return "that name is reserved";
  if (!IsUtf8(tensor.name)) return "its name is not UTF-8";
  if (Rank(tensor.type) < 0)
    return "safetensors has no type " + std::string(info.name) + "; write GGUF, or convert it first";
  if (tensor.shape.back() % info.block_elements != 0) {
    return "its rows of " + std::to_string(tensor.shape.back()) + " elements of type " + std::string(info.name) +
           " do not fill whole bytes";
  }
  return "";
}

using Pointers = std::vector<const NamedTensor*>;

Result<std::unique_ptr<SafetensorsWriter>> WriteUnnamed(const std::string& path, const Pointers& tensors,
                                                        const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  std::map<std::string_view, const NamedTensor*> by_name;
  for (const NamedTensor* tensor : tensors) {
    infos.push_back({tensor->name, tensor->view.type, tensor->view.shape});
    by_name.emplace(tensor->name, tensor);
  }
  HONE_TRY(std::unique_ptr<SafetensorsWriter> writer, SafetensorsWriter::Create(path, std::move(infos), metadata));
  for (const TensorInfo& info : writer->order()) {
    const TensorView& view = by_name.at(info.name)->view;
    HONE_RETURN_IF_ERROR(writer->Append({view.data, view.bytes()}));
  }
  HONE_RETURN_IF_ERROR(writer->Finish());
  return writer;
}

std::string ShardName(size_t no, size_t count) {
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", no + 1, count);
  return text;
}

// Weights in the folder that would stay beside the new ones and mix with them.
Result<void> CheckNoOtherWeights(const fs::path& folder, const std::set<std::string>& written) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool weights =
        name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
    if (!weights || written.count(name)) continue;
    return InvalidInput(folder.string() + ": the folder already holds other weights (" + name +
                        "), which would mix with the new ones; choose an empty folder or remove them");
  }
  return {};
}

Result<void> WriteIndex(const fs::path& folder, const std::vector<Pointers>& shards) {
  std::map<std::string, std::string> map;
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const NamedTensor* tensor : shards[i]) {
      map.emplace(tensor->name, ShardName(i, shards.size()));
      total += tensor->view.bytes();
    }
  }
  std::string text =
      "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total) + "\n  },\n  \"weight_map\": {";
  const char* separator = "\n    ";
  for (const auto& [tensor, shard] : map) {
    text += separator;
    PutJson(tensor, &text);
    text += ": ";
    PutJson(shard, &text);
    separator = ",\n    ";
  }
  text += "\n  }\n}\n";
  HONE_TRY(auto file, AtomicFile::Create((folder / "model.safetensors.index.json").string(), text.size()));
  HONE_RETURN_IF_ERROR(file->Write(text));
  return file->Rename();
}

std::vector<Pointers> CutIntoShards(const std::vector<NamedTensor>& tensors, uint64_t shard_bytes) {
  std::vector<Pointers> shards(1);
  uint64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.view.bytes() > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(&tensor);
    bytes += tensor.view.bytes();
  }
  return shards;
}

}  // namespace

Result<SafetensorsLayout> LayOutSafetensors(const std::string& path, std::vector<TensorInfo> tensors,
                                            const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::make_tuple(-Rank(a.type), std::string_view(a.name)) <
           std::make_tuple(-Rank(b.type), std::string_view(b.name));
  });
  std::set<std::string_view> seen;
  for (const TensorInfo& tensor : tensors) {
    const std::string why = WhyNotWritten(tensor);
    if (!why.empty()) return InvalidInput(path + ": cannot write tensor '" + Printable(tensor.name) + "': " + why);
    if (!seen.insert(tensor.name).second) {
      return InvalidInput(path + ": cannot write tensor '" + Printable(tensor.name) +
                          "': it is given twice, wanted once");
    }
  }
  SafetensorsLayout layout;
  HONE_TRY(const std::string header, HeaderText(path, tensors, metadata));
  const uint64_t header_bytes = header.size();
  layout.head.resize(sizeof(header_bytes));
  std::memcpy(layout.head.data(), &header_bytes, sizeof(header_bytes));
  layout.head += header;
  layout.bytes = layout.head.size();
  for (const TensorInfo& tensor : tensors) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += tensor.bytes();
  }
  layout.tensors = std::move(tensors);
  return layout;
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorInfo> tensors, const std::map<std::string, std::string>& metadata) {
  HONE_TRY(SafetensorsLayout layout, LayOutSafetensors(path, std::move(tensors), metadata));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter());
  writer->tensors_ = std::move(layout.tensors);
  HONE_TRY(writer->file_, AtomicFile::Create(path, layout.bytes));
  HONE_RETURN_IF_ERROR(writer->file_->Write(layout.head));
  if (!writer->tensors_.empty()) writer->left_ = writer->tensors_[0].bytes();
  writer->StepOver();
  return writer;
}

void SafetensorsWriter::StepOver() {
  while (current_ < tensors_.size() && left_ == 0) {
    if (++current_ < tensors_.size()) left_ = tensors_[current_].bytes();
  }
}

Result<void> SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  HONE_CHECK(bytes.size() <= left_, "more bytes than the tensor has");
  HONE_RETURN_IF_ERROR(file_->Write(bytes));
  left_ -= bytes.size();
  StepOver();
  return {};
}

Result<void> SafetensorsWriter::Finish() {
  HONE_CHECK(current_ == tensors_.size(), "a tensor's bytes are missing");
  return file_->Finish();
}

Result<void> SafetensorsWriter::Commit() {
  HONE_RETURN_IF_ERROR(Finish());
  return file_->Rename();
}

Result<void> WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  Pointers pointers;
  for (const NamedTensor& tensor : tensors) pointers.push_back(&tensor);
  HONE_TRY(auto writer, WriteUnnamed(path, pointers, metadata));
  return writer->Commit();
}

Result<void> WriteSafetensorsFolder(const std::string& folder, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata, uint64_t shard_bytes) {
  const fs::path base(folder);
  std::error_code error;
  fs::create_directories(base, error);
  if (error) return IoError(folder + ": cannot make the folder: " + error.message());
  std::set<std::string_view> seen;  // a shard cannot see the names of another
  for (const NamedTensor& tensor : tensors) {
    if (seen.insert(tensor.name).second) continue;
    return InvalidInput(folder + ": cannot write tensor '" + Printable(tensor.name) +
                        "': it is given twice, wanted once");
  }
  const std::vector<Pointers> shards = CutIntoShards(tensors, shard_bytes);
  if (shards.size() == 1) {
    HONE_RETURN_IF_ERROR(CheckNoOtherWeights(base, {"model.safetensors"}));
    return WriteSafetensors((base / "model.safetensors").string(), tensors, metadata);
  }
  std::set<std::string> names = {"model.safetensors.index.json"};
  for (size_t i = 0; i < shards.size(); ++i) names.insert(ShardName(i, shards.size()));
  HONE_RETURN_IF_ERROR(CheckNoOtherWeights(base, names));
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
  for (size_t i = 0; i < shards.size(); ++i) {
    HONE_TRY(writers.emplace_back(), WriteUnnamed((base / ShardName(i, shards.size())).string(), shards[i], metadata));
  }
  for (const auto& writer : writers) HONE_RETURN_IF_ERROR(writer->Commit());
  return WriteIndex(base, shards);  // last: without it the shards do not open
}

}  // namespace hone
