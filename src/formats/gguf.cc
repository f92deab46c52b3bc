// Joins the parts of a split, and gives typed access to the metadata. Checks of one file: formats/gguf_part.cc.
#include "formats/gguf.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>

#include "formats/aligned_copies.h"
#include "formats/file_kind.h"
#include "formats/gguf_part.h"
#include "formats/gguf_split.h"

namespace hone {
namespace {

constexpr std::string_view kSplitNo = "split.no", kSplitCount = "split.count", kSplitTensors = "split.tensors.count";

struct SplitKeys {
  uint64_t no = 0, count = 0;  // count 0: not a split
  int64_t tensors = 0;         // of all parts
};

Result<const GgufValue*> Wanted(const GgufPart& part, std::string_view key, GgufType type) {
  for (const auto& [name, value] : part.metadata) {
    if (name != key) continue;
    if (value.type == type) return &value;
    return InvalidInput(part.file->path() + ": key '" + std::string(key) + "' is of type " + GgufTypeName(value) +
                        ", wanted " + std::string(GgufTypeName(type)) + "; split the model again with a current tool");
  }
  return static_cast<const GgufValue*>(nullptr);
}

Result<SplitKeys> ReadSplitKeys(const GgufPart& part) {
  const std::string& path = part.file->path();
  HONE_TRY(const GgufValue* count, Wanted(part, kSplitCount, GgufType::kU16));
  HONE_TRY(const GgufValue* no, Wanted(part, kSplitNo, GgufType::kU16));
  HONE_TRY(const GgufValue* tensors, Wanted(part, kSplitTensors, GgufType::kI32));
  SplitKeys keys;
  if (count == nullptr || std::get<uint64_t>(count->value) == 0) {
    if (no != nullptr && std::get<uint64_t>(no->value) != 0) {
      return InvalidInput(
          path +
          ": key 'split.no' says it is a part of a split, but 'split.count' is absent or 0; split the model again");
    }
    return keys;
  }
  keys.count = std::get<uint64_t>(count->value);
  if (no == nullptr || tensors == nullptr) {
    return InvalidInput(path + ": a part of a split without '" + std::string(no == nullptr ? kSplitNo : kSplitTensors) +
                        "', wanted split.no, split.count and split.tensors.count; split the model again");
  }
  keys.no = std::get<uint64_t>(no->value);
  keys.tensors = std::get<int64_t>(tensors->value);
  if (keys.no >= keys.count) {
    return InvalidInput(path + ": key 'split.no' is " + std::to_string(keys.no) + ", wanted less than split.count, " +
                        std::to_string(keys.count) + "; the file is damaged");
  }
  return keys;
}

// The part's path with the numbers of another part in its name; an error if the name is not that of part `keys.no`.
Result<std::string> SplitPrefix(const std::string& path, const SplitKeys& keys) {
  const std::string suffix = GgufSplitSuffix(keys.no, keys.count);
  if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  return InvalidInput(path + ": this is part " + std::to_string(keys.no + 1) + " of a split of " +
                      std::to_string(keys.count) + ", so its name must end in '" + suffix +
                      "' to find the others; give the parts their original names");
}

}  // namespace

std::string GgufSplitSuffix(uint64_t no, uint64_t count) {
  char text[64];
  std::snprintf(text, sizeof(text), "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(no + 1),
                static_cast<unsigned long long>(count));
  return text;
}

// Reads part 1, then the others if it is a split, and builds the indices.
class GgufReader {
 public:
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path) {
    HONE_TRY(GgufPart first, ReadPart(path));
    HONE_TRY(const SplitKeys keys, ReadSplitKeys(first));
    std::shared_ptr<GgufFile> file(new GgufFile());
    file->path_ = path;
    file->version_ = first.version;
    file->alignment_ = first.alignment;
    file->metadata_ = std::move(first.metadata);
    if (keys.count > 1) {
      HONE_TRY(const std::string prefix, SplitPrefix(path, keys));
      if (keys.no != 0) {
        return InvalidInput(path + ": this is part " + std::to_string(keys.no + 1) + " of " +
                            std::to_string(keys.count) + " of a split model; give its first part, " + prefix +
                            GgufSplitSuffix(0, keys.count));
      }
      HONE_RETURN_IF_ERROR(CheckAllThere(prefix, keys.count));
      HONE_RETURN_IF_ERROR(Add(std::move(first), file.get()));
      for (uint64_t no = 1; no < keys.count; ++no) HONE_RETURN_IF_ERROR(AddPart(prefix, no, keys, file.get()));
    } else {
      HONE_RETURN_IF_ERROR(Add(std::move(first), file.get()));
    }
    if (keys.count > 0 && static_cast<int64_t>(file->tensors_.size()) != keys.tensors) {
      return InvalidInput(path + ": key 'split.tensors.count' is " + std::to_string(keys.tensors) + ", but the " +
                          std::to_string(keys.count) + " parts hold " + std::to_string(file->tensors_.size()) +
                          " tensors; the parts do not belong together, download or copy them again");
    }
    HONE_RETURN_IF_ERROR(Index(file.get()));
    return std::shared_ptr<const GgufFile>(std::move(file));
  }

 private:
  static Result<GgufPart> ReadPart(const std::string& path) {
    HONE_TRY(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
    return ReadGgufPart(std::move(mapped));
  }

  // Names the parts that are not there before any is read.
  static Result<void> CheckAllThere(const std::string& prefix, uint64_t count) {
    std::string missing;
    uint64_t missing_count = 0;
    for (uint64_t no = 0; no < count; ++no) {
      const std::string path = prefix + GgufSplitSuffix(no, count);
      std::error_code error;
      if (std::filesystem::exists(path, error)) continue;
      if (++missing_count <= 3) missing += (missing.empty() ? "" : ", ") + path;
    }
    if (missing_count == 0) return {};
    if (missing_count > 3) missing += ", ...";
    return NotFound(prefix + GgufSplitSuffix(0, count) + ": " + std::to_string(missing_count) + " of the " +
                    std::to_string(count) + " parts of this split are missing: " + missing +
                    "; put all parts in one folder");
  }

  static Result<void> AddPart(const std::string& prefix, uint64_t no, const SplitKeys& first, GgufFile* file) {
    const std::string path = prefix + GgufSplitSuffix(no, first.count);
    HONE_TRY(GgufPart part, ReadPart(path));
    HONE_TRY(const SplitKeys keys, ReadSplitKeys(part));
    if (keys.no != no || keys.count != first.count || keys.tensors != first.tensors) {
      return InvalidInput(path + ": its split keys say part " + std::to_string(keys.no + 1) + " of " +
                          std::to_string(keys.count) + " with " + std::to_string(keys.tensors) +
                          " tensors in all, wanted part " + std::to_string(no + 1) + " of " +
                          std::to_string(first.count) + " with " + std::to_string(first.tensors) +
                          " as part 1 says; the parts do not belong together");
    }
    return Add(std::move(part), file);
  }

  static Result<void> Add(GgufPart part, GgufFile* file) {
    const std::string& path = part.file->path();
    HONE_TRY(Buffer copies, AlignTensors(path, &part.tensors));
    if (copies.size() > 0) {
      file->warnings_.push_back(path + ": " + std::to_string(copies.size()) +
                                " bytes of tensors lie at odd addresses and are held as a copy; its alignment of " +
                                std::to_string(part.alignment) + " is too small");
      file->copies_.push_back(std::move(copies));
    }
    if (part.unused_bytes > 0) {
      file->warnings_.push_back(path + ": " + std::to_string(part.unused_bytes) +
                                " bytes after the last tensor are not used");
    }
    if (file->tensors_.size() + part.tensors.size() > kGgufMaxTensors) {
      return Error{ErrorCode::kLimit, path + ": the parts hold more than 2^20 tensors; no model needs that"};
    }
    std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(file->tensors_));
    file->parts_.push_back(std::move(part.file));
    return {};
  }

  // Last: the views point into strings that must not move any more.
  static Result<void> Index(GgufFile* file) {
    file->key_index_.reserve(file->metadata_.size());
    for (size_t i = 0; i < file->metadata_.size(); ++i) file->key_index_.emplace(file->metadata_[i].first, i);
    file->tensor_index_.reserve(file->tensors_.size());
    for (size_t i = 0; i < file->tensors_.size(); ++i) {
      if (file->tensor_index_.emplace(file->tensors_[i].name, i).second) continue;
      return InvalidInput(file->path_ + ": tensor '" + Printable(file->tensors_[i].name) +
                          "' is in two parts of the split, wanted once; split the model again");
    }
    return {};
  }
};

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) { return GgufReader::Open(path); }

uint64_t GgufFile::file_bytes() const {
  uint64_t total = 0;
  for (const auto& part : parts_) total += part->bytes().size();
  return total;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto it = key_index_.find(key);
  return it == key_index_.end() ? nullptr : &metadata_[it->second].second;
}

const NamedTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::Release(const TensorView& view) const {
  const std::less_equal<const std::byte*> before;
  for (const auto& part : parts_) {
    const std::span<const std::byte> bytes = part->bytes();
    if (!before(bytes.data(), view.data) || !before(view.data + view.bytes(), bytes.data() + bytes.size())) continue;
    return part->Release(view.data, view.bytes());
  }
}

namespace {

Error Absent(const GgufFile& file, std::string_view key) {
  return InvalidInput(file.path() + ": metadata has no key '" + std::string(key) +
                      "', which is needed; convert the model again with a current tool");
}
Error WrongType(const GgufFile& file, std::string_view key, const GgufValue& found, std::string_view wanted) {
  return InvalidInput(file.path() + ": key '" + std::string(key) + "' is of type " + GgufTypeName(found) + ", wanted " +
                      std::string(wanted));
}

Result<int64_t> ToInt(const GgufFile& file, std::string_view key, uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(value);
  return InvalidInput(file.path() + ": key '" + std::string(key) + "' is " + std::to_string(value) +
                      ", wanted less than 2^63");
}

}  // namespace

Result<int64_t> GgufFile::Int(std::string_view key) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return Absent(*this, key);
  if (const auto* value = std::get_if<int64_t>(&found->value)) return *value;
  if (const auto* value = std::get_if<uint64_t>(&found->value)) return ToInt(*this, key, *value);
  return WrongType(*this, key, *found, "an integer");
}
Result<int64_t> GgufFile::Int(std::string_view key, int64_t fallback) const { return Has(key) ? Int(key) : fallback; }

Result<double> GgufFile::Number(std::string_view key) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return Absent(*this, key);
  if (const auto* value = std::get_if<double>(&found->value)) return *value;
  if (const auto* value = std::get_if<int64_t>(&found->value)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(&found->value)) return static_cast<double>(*value);
  return WrongType(*this, key, *found, "a number");
}
Result<double> GgufFile::Number(std::string_view key, double fallback) const {
  return Has(key) ? Number(key) : fallback;
}

Result<bool> GgufFile::Bool(std::string_view key, bool fallback) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return fallback;
  if (const auto* value = std::get_if<bool>(&found->value)) return *value;
  return WrongType(*this, key, *found, "bool");
}

Result<std::string> GgufFile::String(std::string_view key) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return Absent(*this, key);
  if (const auto* value = std::get_if<std::string>(&found->value)) return *value;
  return WrongType(*this, key, *found, "string");
}
Result<std::string> GgufFile::String(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  return String(key);
}

Result<std::vector<int64_t>> GgufFile::Ints(std::string_view key) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return Absent(*this, key);
  if (const auto* value = std::get_if<std::vector<int64_t>>(&found->value)) return *value;
  if (const auto* value = std::get_if<std::vector<bool>>(&found->value))
    return std::vector<int64_t>(value->begin(), value->end());
  if (const auto* value = std::get_if<std::vector<uint64_t>>(&found->value)) {
    std::vector<int64_t> numbers;
    numbers.reserve(value->size());
    for (const uint64_t x : *value) {
      HONE_TRY(numbers.emplace_back(), ToInt(*this, key, x));
    }
    return numbers;
  }
  return WrongType(*this, key, *found, "an array of integers");
}

Result<std::vector<double>> GgufFile::Numbers(std::string_view key) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return Absent(*this, key);
  if (const auto* value = std::get_if<std::vector<double>>(&found->value)) return *value;
  if (const auto* value = std::get_if<std::vector<int64_t>>(&found->value))
    return std::vector<double>(value->begin(), value->end());
  if (const auto* value = std::get_if<std::vector<uint64_t>>(&found->value))
    return std::vector<double>(value->begin(), value->end());
  return WrongType(*this, key, *found, "an array of numbers");
}

Result<std::span<const std::string>> GgufFile::Strings(std::string_view key) const {
  const GgufValue* found = Find(key);
  if (found == nullptr) return Absent(*this, key);
  if (const auto* value = std::get_if<std::vector<std::string>>(&found->value))
    return std::span<const std::string>(*value);
  return WrongType(*this, key, *found, "an array of strings");
}

}  // namespace hone
