// See packed_cache.h.
#include "models/packed_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/digest.h"
#include "formats/atomic_file.h"
#include "kernels/matmul/matmul.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeaderBytes = 4096;  // panels begin at a page

struct Header {
  char magic[8] = {'H', 'O', 'N', 'E', 'P', 'A', 'N', 'L'};
  uint32_t layout = kPanelLayout;
  uint32_t zero = 0;
  uint64_t bytes = 0;
  char key[32] = {};
};
static_assert(sizeof(Header) == 56);

Header HeaderOf(const std::string& key, size_t bytes) {
  Header header;
  header.bytes = bytes;
  key.copy(header.key, sizeof(header.key));
  return header;
}

// The files that the weights lie in: one, or all of a folder (also for a split, whose parts lie side by side).
std::vector<fs::path> WeightFiles(const fs::path& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (!folder && path.filename().string().find("-of-") == std::string::npos) return {path};
  std::vector<fs::path> files;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator it(folder ? path : parent, error), end; !error && it != end; it.increment(error)) {
    const fs::path extension = it->path().extension();
    if (extension == ".safetensors" || extension == ".gguf") files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

PackedCacheFile FindPackedCache(const Checkpoint& checkpoint, bool exact, const std::string& folder) {
  Digest128 digest;
  digest.Text(checkpoint.Digest());
  digest.Number(exact);
  for (const fs::path& path : WeightFiles(checkpoint.path())) {
    struct stat facts = {};
    if (stat(path.c_str(), &facts) != 0) continue;
    digest.Number(static_cast<uint64_t>(facts.st_size));
    digest.Number(static_cast<uint64_t>(facts.st_mtim.tv_sec));
    digest.Number(static_cast<uint64_t>(facts.st_mtim.tv_nsec));
  }
  const std::string key = digest.Hex();
  return {(fs::path(folder) / fmt::format("{}-{}.panels", checkpoint.name(), key)).string(), key};
}

std::shared_ptr<const MappedFile> OpenPackedCache(const PackedCacheFile& file, size_t bytes) {
  auto mapped = MappedFile::Open(file.path);
  if (!mapped || (*mapped)->bytes().size() != kHeaderBytes + bytes) return nullptr;
  const Header wanted = HeaderOf(file.key, bytes);
  if (std::memcmp((*mapped)->bytes().data(), &wanted, sizeof(wanted)) != 0) return nullptr;
  (*mapped)->WillNeed((*mapped)->bytes().data(), (*mapped)->bytes().size());
  return *std::move(mapped);
}

std::span<const std::byte> PanelsOf(const MappedFile& file) { return file.bytes().subspan(kHeaderBytes); }

Result<void> WritePackedCache(const PackedCacheFile& file, std::span<const std::byte> panels) {
  std::error_code error;
  fs::create_directories(fs::path(file.path).parent_path(), error);  // Create says what is wrong
  HONE_TRY(const auto out, AtomicFile::Create(file.path, kHeaderBytes + panels.size()));
  const Header header = HeaderOf(file.key, panels.size());
  HONE_RETURN_IF_ERROR(out->Write(std::as_bytes(std::span(&header, 1))));
  HONE_RETURN_IF_ERROR(out->Zeros(kHeaderBytes - sizeof(header)));
  HONE_RETURN_IF_ERROR(out->Write(panels));
  return out->Rename();
}

}  // namespace hone
