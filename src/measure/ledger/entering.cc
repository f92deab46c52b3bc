// Where the ledger lies, what is written down beside the figures, and how a run is entered. See ledger.h.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/user_path.h"
#include "measure/ledger/ledger.h"
#include "measure/machine.h"
#include "measure/sha256.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEdgeBytes = 1 << 20;

// The size, the first and the last MiB of a file.
bool AddFile(const fs::path& path, std::string* text) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) return false;
  *text += path.filename().string() + "\n" + std::to_string(bytes) + "\n";
  std::string edge(std::min<uint64_t>(bytes, kEdgeBytes), '\0');
  in.read(edge.data(), static_cast<std::streamsize>(edge.size()));
  *text += Sha256Hex(edge);
  if (bytes > kEdgeBytes) {
    in.seekg(-static_cast<std::streamoff>(edge.size()), std::ios::end);
    in.read(edge.data(), static_cast<std::streamsize>(edge.size()));
    *text += Sha256Hex(edge);
  }
  return !in.bad();
}

}  // namespace

std::string LedgerPath(const std::string& flag) {
  if (flag == "off") return "";
  if (!flag.empty()) return flag;
  return UserPath(UserFolder::kState, "ledger.sqlite");
}

std::string EnvironmentJson(const Runtime& runtime) {
  const MachineFacts machine = ReadMachineFacts();
  const nlohmann::ordered_json json = {{"cpu", runtime.cpu->brand},
                                       {"cores", runtime.cpu->physical_cores},
                                       {"threads", runtime.threads == nullptr ? 1 : runtime.threads->count()},
                                       {"isa", IsaName(runtime.isa)},
                                       {"system", machine.system},
                                       {"microcode", machine.microcode},
                                       {"governor", machine.governor},
                                       {"virtual_machine", machine.virtual_machine},
                                       {"huge_pages", machine.huge_pages},
                                       {"memory_bytes", machine.memory_bytes},
                                       {"compiler", __VERSION__},
                                       {"hone", HONE_VERSION}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int64_t Enter(const std::string& flag, LedgerEntry entry, Log* log) {
  const std::string path = LedgerPath(flag);
  if (path.empty()) return 0;
  const auto warn = [&](const Error& error) {
    if (log != nullptr) log->Warn("this run is not in the ledger: {}", error.message);
    return int64_t{0};
  };
  Result<std::unique_ptr<Ledger>> ledger = Ledger::Open(path);
  if (!ledger) return warn(ledger.error());
  const Result<int64_t> id = (*ledger)->Add(entry);
  if (!id) return warn(id.error());
  if (log != nullptr) log->Debug("entered as {} of {}", *id, path);
  return *id;
}

std::string ModelDigest(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_directory(path, error)) {
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  std::string text;
  for (const fs::path& file : files) {
    if (!AddFile(file, &text)) return "";
  }
  return files.empty() ? "" : Sha256Hex(text);
}

}  // namespace hone
