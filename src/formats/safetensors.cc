// Opens safetensors files and folders. The JSON is read in formats/safetensors_header.cc; here are the files around it.
#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "formats/aligned_copies.h"
#include "formats/file_kind.h"
#include "formats/safetensors_header.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

struct OneFile {
  std::shared_ptr<const MappedFile> file;
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
  Buffer copies;
};

Result<OneFile> ReadOne(const std::string& path) {
  OneFile one;
  HONE_TRY(one.file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = one.file->bytes();
  const auto not_safetensors = [&](const std::string& found) {
    return InvalidInput(path + ": not a safetensors file: " + found);
  };
  if (bytes.size() < 8)
    return not_safetensors("it has " + std::to_string(bytes.size()) + " bytes, wanted 8 for the header's length");
  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, bytes.size() - 8);
  if (!text.starts_with('{'))
    return not_safetensors("wanted '{' after the header's length; " + DescribeContents(bytes));
  if (header_bytes > kSafetensorsMaxHeaderBytes) {
    return not_safetensors("its header's length is " + std::to_string(header_bytes) + ", wanted at most 100000000; " +
                           "the file is damaged, or needs splitting into shards");
  }
  if (header_bytes > text.size()) {
    return InvalidInput(path + ": the header has " + std::to_string(header_bytes) + " bytes, the file " +
                        std::to_string(bytes.size()) + "; it is cut off, download or copy it again");
  }
  HONE_TRY(SafetensorsHeader header,
           ParseSafetensorsHeader(text.substr(0, header_bytes), text.size() - header_bytes, path));
  one.metadata = std::move(header.metadata);
  one.tensors.reserve(header.entries.size());
  for (SafetensorsEntry& entry : header.entries) {
    const TensorView view{entry.type, entry.shape, bytes.data() + 8 + header_bytes + entry.begin};
    one.tensors.push_back({std::move(entry.name), view});
  }
  HONE_TRY(one.copies, AlignTensors(path, &one.tensors));
  return one;
}

// Names of *.safetensors in a folder, sorted; consolidated*.safetensors are another form of the same weights.
std::vector<std::string> ShardNames(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".safetensors") && !name.starts_with("consolidated")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A file that a loader could take for weights of this model.
bool LooksLikeShard(std::string_view name) {
  return name.starts_with("model") || name.find("-of-") != std::string_view::npos;
}

}  // namespace

class SafetensorsReader {
 public:
  static Result<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path) {
    std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
    file->path_ = path;
    HONE_TRY(OneFile one, ReadOne(path));
    Add(std::move(one), file.get());
    return Indexed(std::move(file));
  }

  static Result<std::shared_ptr<const SafetensorsFile>> OpenFolder(const std::string& folder) {
    const fs::path base(folder);
    const std::vector<std::string> names = ShardNames(folder);
    std::error_code error;
    if (fs::exists(base / kIndexName, error)) return OpenIndex(folder, names);
    std::string chosen = kSingleName;
    if (!fs::exists(base / kSingleName, error)) {
      std::vector<std::string> others;
      for (const std::string& name : names) {
        if (!name.starts_with("adapter_model")) others.push_back(name);
      }
      if (others.empty()) {
        return NotFound(folder + ": no " + kIndexName + " and no " + kSingleName +
                        ", wanted one of them; download the weights");
      }
      if (others.size() > 1) {
        return NotFound(folder + ": " + std::to_string(others.size()) + " .safetensors files (" + others[0] + ", " +
                        others[1] + (others.size() > 2 ? ", ..." : "") + ") but no " + kIndexName +
                        " that says which tensor is where; download the index");
      }
      chosen = others[0];
    }
    std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
    file->path_ = (base / chosen).string();
    HONE_TRY(OneFile one, ReadOne(file->path_));
    Add(std::move(one), file.get());
    WarnUnnamed(names, {chosen}, folder + ": " + chosen + " is read", file.get());
    return Indexed(std::move(file));
  }

 private:
  static void Add(OneFile one, SafetensorsFile* file) {
    if (file->files_.empty()) file->metadata_ = std::move(one.metadata);
    if (one.copies.size() > 0) {
      file->warnings_.push_back(
          one.file->path() + ": " + std::to_string(one.copies.size()) +
          " bytes of tensors lie at odd addresses and are held as a copy; write the file again to avoid it");
      file->copies_.push_back(std::move(one.copies));
    }
    std::move(one.tensors.begin(), one.tensors.end(), std::back_inserter(file->tensors_));
    file->files_.push_back(std::move(one.file));
  }

  static std::shared_ptr<const SafetensorsFile> Indexed(std::shared_ptr<SafetensorsFile> file) {
    file->index_.reserve(file->tensors_.size());
    for (size_t i = 0; i < file->tensors_.size(); ++i) file->index_.emplace(file->tensors_[i].name, i);
    return file;
  }

  static void WarnUnnamed(const std::vector<std::string>& names, const std::set<std::string>& used,
                          const std::string& why, SafetensorsFile* file) {
    for (const std::string& name : names) {
      if (used.count(name) || !LooksLikeShard(name)) continue;
      file->warnings_.push_back(why + "; " + name + " is not, it may be left from another version of the model");
    }
  }

  static Result<std::shared_ptr<const SafetensorsFile>> OpenIndex(const std::string& folder,
                                                                  const std::vector<std::string>& names) {
    const fs::path base(folder);
    const std::string index_path = (base / kIndexName).string();
    HONE_TRY(const auto index_file, MappedFile::Open(index_path));
    const std::span<const std::byte> bytes = index_file->bytes();
    HONE_TRY(const auto map,
             ParseSafetensorsIndex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, index_path));

    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map) shards.insert(shard);
    HONE_RETURN_IF_ERROR(CheckAllThere(index_path, base, shards));

    std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
    file->path_ = index_path;
    std::set<std::string> seen;  // tensors that are in a shard that the index names for them, or that it does not name
    size_t unnamed = 0;
    std::string unnamed_example;
    for (const std::string& shard : shards) {
      HONE_TRY(OneFile one, ReadOne((base / shard).string()));
      std::vector<NamedTensor> kept;
      for (NamedTensor& tensor : one.tensors) {
        const auto it = map.find(tensor.name);
        if (it == map.end()) {
          if (unnamed++ == 0) unnamed_example = tensor.name;
        } else if (it->second != shard) {
          file->warnings_.push_back(one.file->path() + ": tensor '" + Printable(tensor.name) +
                                    "' is not read from here, the index says " + it->second);
          continue;
        }
        if (!seen.insert(tensor.name).second) {
          return InvalidInput(one.file->path() + ": tensor '" + Printable(tensor.name) +
                              "' is in two shards and the index does not say which counts; download the model again");
        }
        kept.push_back(std::move(tensor));
      }
      one.tensors = std::move(kept);
      Add(std::move(one), file.get());
    }
    for (const auto& [tensor, shard] : map) {
      if (seen.count(tensor)) continue;
      return InvalidInput((base / shard).string() + ": no tensor '" + Printable(tensor) + "', which " + kIndexName +
                          " says is in it; shards and index do not belong together, download the model again");
    }
    if (unnamed > 0) {
      file->warnings_.push_back(index_path + ": " + std::to_string(unnamed) +
                                " tensors of the shards are not in it (first: '" + Printable(unnamed_example) +
                                "'); they are read all the same");
    }
    WarnUnnamed(names, shards, index_path + ": its shards are read", file.get());
    return Indexed(std::move(file));
  }

  static Result<void> CheckAllThere(const std::string& index_path, const fs::path& base,
                                    const std::set<std::string>& shards) {
    std::string missing;
    size_t missing_count = 0;
    std::error_code error;
    for (const std::string& shard : shards) {
      if (fs::exists(base / shard, error)) continue;
      if (++missing_count <= 3) missing += (missing.empty() ? "" : ", ") + shard;
    }
    if (missing_count == 0) return {};
    return NotFound(index_path + ": " + std::to_string(missing_count) + " of its " + std::to_string(shards.size()) +
                    " shards are missing from the folder: " + missing + (missing_count > 3 ? ", ..." : "") +
                    "; download them");
  }
};

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  return SafetensorsReader::Open(path);
}
Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::OpenFolder(const std::string& folder) {
  return SafetensorsReader::OpenFolder(folder);
}

uint64_t SafetensorsFile::file_bytes() const {
  uint64_t total = 0;
  for (const auto& file : files_) total += file->bytes().size();
  return total;
}

const NamedTensor* SafetensorsFile::FindTensor(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void SafetensorsFile::Release(const TensorView& view) const {
  const std::less_equal<const std::byte*> before;
  for (const auto& file : files_) {
    const std::span<const std::byte> bytes = file->bytes();
    if (!before(bytes.data(), view.data) || !before(view.data + view.bytes(), bytes.data() + bytes.size())) continue;
    return file->Release(view.data, view.bytes());
  }
}

}  // namespace hone
