// See folder_vocabulary.h.
#include "cli/folder_vocabulary.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cli/input.h"
#include "models/model.h"
#include "text/chat_template.h"
#include "text/gguf_vocabulary.h"

namespace hone {
namespace {

// The kind is found by trying on a file that holds the vocabulary alone.
Result<void> AddPreKind(const GgufMetadata& vocabulary, const Tokenizer& tokenizer, GgufMetadata* metadata) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return IoError("the folder for temporary files (TMPDIR): " + error.message());
  const std::string trial = (folder / ("hone-vocabulary-" + std::to_string(getpid()) + ".gguf")).string();
  HONE_RETURN_IF_ERROR(WriteGguf(trial, {.metadata = vocabulary, .tensors = {}}));
  const auto file = GgufFile::Open(trial);
  const Result<std::string> pre = file ? FindGgufPreKind(**file, tokenizer) : Result<std::string>(file.error());
  std::error_code ignored;
  std::filesystem::remove(trial, ignored);
  if (!pre) return pre.error();
  if (!pre->empty()) metadata->emplace_back("tokenizer.ggml.pre", GgufString(*pre));
  return {};
}

}  // namespace

Result<GgufMetadata> FolderVocabulary(const Checkpoint& checkpoint, const Tokenizer& tokenizer, int vocab,
                                      const char* command) {
  const std::string path = checkpoint.path() + "/tokenizer.json";
  HONE_TRY(const std::string json, ReadText(path));
  HONE_TRY(const auto vocabulary, GgufVocabulary(json, path, tokenizer, vocab));
  GgufMetadata metadata(vocabulary.begin(), vocabulary.end());
  HONE_RETURN_IF_ERROR(AddPreKind(vocabulary, tokenizer, &metadata));
  if (Normalises(tokenizer)) {
    std::fprintf(
        stderr,
        "hone %s: this tokenizer composes characters first (NFC), which GGUF cannot say; other readers give other "
        "ids for text that is not composed\n",
        command);
  }
  if (const auto chat = ChatTemplateFromCheckpoint(checkpoint)) {
    metadata.emplace_back("tokenizer.chat_template", GgufString(chat->source()));
  }
  return metadata;
}

Result<void> CheckSameAsFolder(const std::string& path, const ModelConfig& config, const Tokenizer& tokenizer) {
  HONE_TRY(const auto back, Checkpoint::Open(path));
  HONE_TRY(const ModelConfig back_config, ReadModelConfig(*back));
  HONE_RETURN_IF_ERROR(CheckSameModel(config, back_config));
  HONE_TRY(const auto back_tokenizer, Tokenizer::FromCheckpoint(*back));
  return CheckSameIds(tokenizer, *back_tokenizer);
}

}  // namespace hone
