// Decides what a path is. The order of questions stands in Checkpoint::Open; each refusal says what was there and what
// to give.
#include "formats/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "base/nearest_name.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxListed = 2000;  // entries of a folder that are looked at

std::vector<std::string> Entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && names.size() < kMaxListed;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Joined(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > most ? text + ", ..." : text;
}

Error PathNotFound(const std::string& path) {
  fs::path full(path);
  if (full.filename().empty()) full = full.parent_path();
  const fs::path parent = full.has_parent_path() ? full.parent_path() : fs::path(".");
  const std::string name = full.filename().string();
  std::error_code error;
  if (!fs::is_directory(parent, error)) {
    return NotFound(path + ": no such file or folder (there is no folder " + parent.string() +
                    "); give a GGUF file, a Hugging Face folder, or builtin");
  }
  if (fs::is_symlink(full, error)) {
    return NotFound(path + ": a link to " + fs::read_symlink(full, error).string() +
                    ", which is not there; fetch the file again (caches of models are made of such links)");
  }
  const std::vector<std::string> entries = Entries(parent);
  std::vector<std::string> near;
  if (std::string nearest = NearestName(name, entries); !nearest.empty()) near.push_back(std::move(nearest));
  for (const std::string& entry : entries) {
    const bool longer = name.size() >= 3 && entry.starts_with(name) && (near.empty() || entry != near.front());
    if (longer && near.size() < 3) near.push_back(entry);
  }
  if (near.empty()) {
    return NotFound(path + ": no such file or folder; give a GGUF file, a Hugging Face folder, or builtin");
  }
  for (std::string& entry : near) entry = (parent / entry).string();
  return NotFound(path + ": no such file or folder; did you mean " + Joined(near, 3) + "?");
}

bool IsFirstPart(const std::string& name) { return name.find("-00001-of-") != std::string::npos; }
bool IsLaterPart(const std::string& name) {
  const size_t at = name.rfind("-of-");
  if (at == std::string::npos || at < 6 || name.size() != at + 9 + 5 || IsFirstPart(name)) return false;
  return name[at - 6] == '-' &&
         std::all_of(name.begin() + at - 5, name.begin() + at, [](char c) { return c >= '0' && c <= '9'; });
}

struct FolderFacts {
  bool config = false, tokenizer = false, safetensors = false, adapter = false;
  std::vector<std::string> ggufs, pickles;
};

FolderFacts Survey(const fs::path& folder) {
  FolderFacts facts;
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(folder / name, error); };
  facts.config = has("config.json");
  facts.tokenizer = has("tokenizer.json");
  facts.adapter = has("adapter_config.json");
  facts.safetensors = has("model.safetensors.index.json") || has("model.safetensors");
  for (const std::string& name : Entries(folder)) {
    if (name.ends_with(".gguf") && !IsLaterPart(name)) facts.ggufs.push_back(name);
    if (name.ends_with(".safetensors") && !name.starts_with("adapter_model") && !name.starts_with("consolidated")) {
      facts.safetensors = true;
    }
    if (name.starts_with("pytorch_model") || name.ends_with(".pth") || name.ends_with(".pt") ||
        name.ends_with(".ckpt")) {
      facts.pickles.push_back(name);
    }
  }
  return facts;
}

Error NotAModel(const std::string& path, const FolderFacts& facts) {
  if (facts.adapter) {
    return InvalidInput(
        path +
        ": this is an adapter (adapter_config.json), not a model; give its base model and name the adapter apart");
  }
  // A copy of the hub's cache holds the model two folders down.
  const fs::path snapshots = fs::path(path) / "snapshots";
  std::vector<std::string> below;
  std::error_code error;
  for (const fs::path& base : {fs::path(path), snapshots}) {
    for (const std::string& name : Entries(base)) {
      const FolderFacts inner = fs::is_directory(base / name, error) ? Survey(base / name) : FolderFacts();
      if (inner.config || !inner.ggufs.empty()) below.push_back((base / name).string());
      if (below.size() > 3) break;
    }
  }
  return InvalidInput(
      path +
      ": no config.json, no tokenizer.json and no .gguf file in this folder, wanted a Hugging Face folder or one "
      "GGUF file" +
      (below.empty() ? "; give the model's own folder" : "; did you mean " + Joined(below, 3) + "?"));
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    const bool absent = !error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return absent ? PathNotFound(path) : IoError(path + ": cannot open: " + error.message());
  }
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->path_ = path;

  if (!fs::is_directory(status)) {
    if (!fs::is_regular_file(status))
      return InvalidInput(path + ": neither a file nor a folder; give a GGUF file or a model folder");
    if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json")) {
      const fs::path parent = fs::path(path).parent_path();
      return InvalidInput(path +
                          ": one file of a Hugging Face model; give the folder that holds it and its config.json: " +
                          (parent.empty() ? "." : parent.string()));
    }
    HONE_TRY(checkpoint->gguf_, GgufFile::Open(path));
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
  }

  const FolderFacts facts = Survey(path);
  if (!facts.safetensors && !facts.ggufs.empty()) {
    if (facts.ggufs.size() > 1) {
      return InvalidInput(path + ": " + std::to_string(facts.ggufs.size()) +
                          " GGUF files in this folder, wanted one; name the file: " + Joined(facts.ggufs, 8));
    }
    HONE_TRY(checkpoint->gguf_, GgufFile::Open((fs::path(path) / facts.ggufs[0]).string()));
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
  }
  if (!facts.safetensors && !facts.pickles.empty()) {
    return Unsupported(
        path + ": its weights are Python pickles (" + Joined(facts.pickles, 2) +
        "), which can run code and are not read; convert them to safetensors, or download that form of the model");
  }
  if (!facts.config && !facts.tokenizer) {
    if (facts.safetensors) {
      return InvalidInput(
          path + ": .safetensors files but no config.json, which says what the model is; download config.json too");
    }
    return NotAModel(path, facts);
  }
  const fs::path base(path);
  if (facts.config) {
    HONE_TRY(checkpoint->config_, JsonConfig::Read((base / "config.json").string()));
  }
  if (fs::exists(base / "generation_config.json", error)) {
    HONE_TRY(checkpoint->generation_, JsonConfig::Read((base / "generation_config.json").string()));
  }
  if (facts.safetensors) {
    HONE_TRY(checkpoint->safetensors_, SafetensorsFile::OpenFolder(path));
  }
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

std::string Checkpoint::name() const {
  std::error_code error;
  fs::path full = fs::absolute(gguf_ ? gguf_->path() : path_, error).lexically_normal();
  if (full.filename().empty()) full = full.parent_path();
  if (!gguf_) return full.filename().string();
  std::string stem = full.stem().string();
  const size_t part = stem.find("-00001-of-");
  if (part != std::string::npos && part + 15 == stem.size()) stem.resize(part);
  return stem;
}

const std::vector<NamedTensor>& Checkpoint::tensors() const {
  static const std::vector<NamedTensor> kNone;
  if (gguf_) return gguf_->tensors();
  return safetensors_ ? safetensors_->tensors() : kNone;
}

const NamedTensor* Checkpoint::FindTensor(std::string_view name) const {
  if (gguf_) return gguf_->FindTensor(name);
  return safetensors_ ? safetensors_->FindTensor(name) : nullptr;
}

uint64_t Checkpoint::file_bytes() const {
  if (gguf_) return gguf_->file_bytes();
  return safetensors_ ? safetensors_->file_bytes() : 0;
}

std::vector<std::string> Checkpoint::warnings() const {
  if (gguf_) return gguf_->warnings();
  return safetensors_ ? safetensors_->warnings() : std::vector<std::string>();
}

namespace {

void AddValue(const GgufValue& value, Digest128* digest) {
  digest->Number(static_cast<uint64_t>(value.type));
  if (const auto* unsigned_number = std::get_if<uint64_t>(&value.value)) digest->Number(*unsigned_number);
  if (const auto* number = std::get_if<int64_t>(&value.value)) digest->Number(static_cast<uint64_t>(*number));
  if (const auto* real = std::get_if<double>(&value.value)) digest->Bytes(real, sizeof *real);
  if (const auto* flag = std::get_if<bool>(&value.value)) digest->Number(*flag ? 1 : 0);
  if (const auto* text = std::get_if<std::string>(&value.value)) digest->Text(*text);
}

void AddSample(const TensorView& view, Digest128* digest) {
  constexpr size_t kPieces = 16, kPieceBytes = 256;
  const size_t bytes = view.bytes();
  digest->Number(bytes);
  if (bytes <= kPieces * kPieceBytes) return digest->Bytes(view.data, bytes);
  const size_t last = bytes - kPieceBytes;
  for (size_t i = 0; i < kPieces; ++i) {
    digest->Bytes(view.data + (i + 1 < kPieces ? last / (kPieces - 1) * i : last), kPieceBytes);
  }
}

}  // namespace

std::string Checkpoint::Digest() const {
  Digest128 digest;
  if (gguf_) {
    for (const auto& [key, value] : gguf_->metadata()) {
      digest.Text(key);
      AddValue(value, &digest);
    }
  } else if (config_) {
    digest.Text(config_->Dump());
  }
  for (const NamedTensor& tensor : tensors()) {
    digest.Text(tensor.name);
    digest.Text(Info(tensor.view.type).name);
    for (int i = 0; i < tensor.view.shape.rank(); ++i) digest.Number(static_cast<uint64_t>(tensor.view.shape[i]));
    AddSample(tensor.view, &digest);
    Release(tensor.view);
  }
  return digest.Hex();
}

void Checkpoint::Release(const TensorView& view) const {
  if (gguf_) gguf_->Release(view);
  if (safetensors_) safetensors_->Release(view);
}

}  // namespace hone
