// The tokenizer of whatever a checkpoint is. A folder's config.json and generation_config.json know ends of generation
// that its tokenizer files do not name.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/checkpoint.h"
#include "text/gguf_tokenizer.h"
#include "text/hf_tokenizer.h"

namespace hone {
namespace {

constexpr size_t kMaxJsonBytes = size_t{1} << 30;

// The bytes of a file; nothing if there is none.
Result<std::optional<std::string>> ReadIfThere(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {  // opening a pipe would wait
    return InvalidInput(path + ": not a regular file");
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file && std::filesystem::exists(status)) return IoError(path + ": cannot be opened");
  if (!file) return std::optional<std::string>();
  const auto size = file.tellg();
  if (size < 0 || static_cast<size_t>(size) > kMaxJsonBytes)
    return InvalidInput(path + ": too large to be a tokenizer file");
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) return IoError(path + ": cannot be read");
  return std::optional(std::move(text));
}

void AddEnds(const JsonConfig* config, TokenizerParts* parts) {
  if (config == nullptr || !config->Has("eos_token_id")) return;
  const auto ids = config->Ints("eos_token_id");
  if (!ids) return;
  for (const int64_t id : *ids) {
    if (id < 0 || static_cast<size_t>(id) >= parts->vocabulary->size()) continue;
    parts->end_ids.push_back(static_cast<int32_t>(id));
    if (!parts->eos) parts->eos = static_cast<int32_t>(id);
  }
  std::sort(parts->end_ids.begin(), parts->end_ids.end());
  parts->end_ids.erase(std::unique(parts->end_ids.begin(), parts->end_ids.end()), parts->end_ids.end());
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromCheckpoint(const Checkpoint& checkpoint,
                                                                   std::string_view force_pre) {
  if (checkpoint.gguf() != nullptr) return FromGguf(*checkpoint.gguf(), force_pre);
  const std::string folder = checkpoint.path();
  if (!force_pre.empty()) {
    return UsageError("--pre " + std::string(force_pre) + ": " + folder +
                      " has a tokenizer.json, which says itself how it splits text");
  }
  const std::string path = folder + "/tokenizer.json";
  HONE_TRY(const std::optional<std::string> json, ReadIfThere(path));
  if (!json) {
    return NotFound(
        path +
        ": no such file; a model folder needs tokenizer.json (save it with `tokenizers` or `transformers` from "
        "whatever tokenizer files there are)");
  }
  HONE_TRY(const std::optional<std::string> config, ReadIfThere(folder + "/tokenizer_config.json"));
  HONE_TRY(TokenizerParts parts, ReadHuggingFaceTokenizer(*json, config.value_or("")).Context(folder));
  AddEnds(checkpoint.config(), &parts);
  AddEnds(checkpoint.generation_config(), &parts);
  return std::shared_ptr<const Tokenizer>(std::make_shared<TextTokenizer>(std::move(parts)));
}

}  // namespace hone
