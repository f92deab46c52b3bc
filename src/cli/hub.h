// A hub of models in the layout of the Hugging Face hub: what a repository holds, and its files fetched to a local
// copy.
//
//   HONE_HUB        where the hub is (default: kDefaultHub)
//   HF_TOKEN        sent as a bearer token to the hub itself, never to another host or over plain HTTP to one
//   HONE_MODELS     where local copies are: FOLDER/OWNER/NAME (default: ~/.cache/hone/models)
//
// A file arrives under its name with ".part", is resumed from there after a break, and gets its name only when its size
// and digest (SHA-256 for large files, git's blob digest for small ones) are what the hub says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace hone {

inline constexpr char kDefaultHub[] = "https://huggingface.co";

// "OWNER/NAME" or "OWNER/NAME:FILE".
struct HubName {
  std::string owner, name, file;
  std::string repository() const { return owner + "/" + name; }
};
// none: not of that form.
std::optional<HubName> ParseHubName(const std::string& text);

struct HubFile {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;    // of large files; ""
  std::string git_sha1;  // of small ones: of "blob SIZE\0" and the content; ""
};

struct HubOptions {
  std::string hub = kDefaultHub;
  std::string token;                                                                     // "": none
  std::string models;                                                                    // the folder of local copies
  std::function<void(const std::string& file, uint64_t done, uint64_t total)> progress;  // may be empty
};
// From the environment. Errors: no home folder to keep copies in, a hub that is no http(s) address.
Result<HubOptions> HubOptionsFromEnvironment();

// The files of a repository. Errors: no such repository, no access, no connection.
Result<std::vector<HubFile>> ListHubFiles(const HubOptions& options, const HubName& name);

// Those that make a model: the one asked for (with the other parts of a split GGUF); otherwise the weights in
// safetensors with their configuration and tokenizer; otherwise the only GGUF. Errors list what there is to choose
// from.
Result<std::vector<HubFile>> ChooseHubFiles(const std::vector<HubFile>& files, const HubName& name);

// Fetches what is missing; the path of the local copy: the file, or the folder.
Result<std::string> PullFromHub(const HubOptions& options, const HubName& name);

// The local copy of "OWNER/NAME[:FILE]". kNotFound: it is not there, with the command that fetches it.
Result<std::string> LocalHubCopy(const HubOptions& options, const HubName& name);

}  // namespace hone
