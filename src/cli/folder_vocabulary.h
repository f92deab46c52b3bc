// The tokenizer of a Hugging Face folder as GGUF metadata: what convert and quantize add to a model's own.
#pragma once

#include <string>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/gguf_export.h"
#include "text/tokenizer.h"

namespace hone {

// Vocabulary, the name of its pre-tokenizer kind, and the chat template. A small file in the system's temporary folder
// is made and removed to try kinds on. `command` stands before the warning about normalisation, if there is one.
// Errors: a tokenizer that GGUF cannot hold.
Result<GgufMetadata> FolderVocabulary(const Checkpoint& checkpoint, const Tokenizer& tokenizer, int vocab,
                                      const char* command);

// A reader of the GGUF file `path` gets the same model (config) and the same ids (tokenizer) as the folder.
Result<void> CheckSameAsFolder(const std::string& path, const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace hone
