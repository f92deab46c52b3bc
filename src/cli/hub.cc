// See hub.h. libcurl moves the bytes; names and sizes that a hub sends are checked before anything is written.
#include "cli/hub.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/user_path.h"
#include "measure/load/transport.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMaxListBytes = 64u << 20;
constexpr long kConnectSeconds = 30;
constexpr long kStallSeconds = 60;  // without a byte: the transfer has failed
constexpr int kTries = 4;

struct EasyCleanup {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
using Easy = std::unique_ptr<CURL, EasyCleanup>;

bool IsNamePart(const std::string& text) {
  if (text.empty() || text.size() > 128 || text.front() == '.' || text.front() == '-') return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

// A path inside the repository's folder: nothing that leads out of it.
bool IsSafePath(const std::string& path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/') return false;
  for (const unsigned char c : path) {
    if (c < 0x20 || c == 0x7f || c == '\\') return false;
  }
  for (const fs::path& part : fs::path(path)) {
    if (part == ".." || part == "." || part.empty()) return false;
  }
  return true;
}

bool IsPlainHttpToOthers(const std::string& url) {
  return url.rfind("http://", 0) == 0 && url.rfind("http://127.0.0.1", 0) != 0 &&
         url.rfind("http://localhost", 0) != 0 && url.rfind("http://[::1]", 0) != 0;
}

std::string EscapePath(const std::string& path) {
  std::string out;
  for (const unsigned char c : path) {
    if (std::isalnum(c) || std::strchr("-_.~/", c) != nullptr)
      out += static_cast<char>(c);
    else
      out += fmt::format("%{:02X}", static_cast<unsigned>(c));
  }
  return out;
}

Result<Easy> Prepare(const HubOptions& options, const std::string& url) {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  Easy curl(global == CURLE_OK ? curl_easy_init() : nullptr);
  if (curl == nullptr) return Error{ErrorCode::kInternal, "libcurl cannot be set up"};
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_USERAGENT, "hone/" HONE_VERSION);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, 8L);
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  // From https only to https.
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, url.rfind("https", 0) == 0 ? "https" : "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  if (!options.token.empty() && !IsPlainHttpToOthers(url)) {
    curl_easy_setopt(curl.get(), CURLOPT_HTTPAUTH, CURLAUTH_BEARER);  // libcurl leaves it out on other hosts
    curl_easy_setopt(curl.get(), CURLOPT_XOAUTH2_BEARER, options.token.c_str());
  }
  return curl;
}

Error StatusError(long status, const std::string& what, bool has_token) {
  if (status == 401 || status == 403) {
    return NotFound(what + (has_token ? ": the hub refuses access with the token in HF_TOKEN"
                                      : ": there is no such repository, or it wants a token; set HF_TOKEN"));
  }
  if (status == 404) return NotFound(what + ": the hub has no such repository or file");
  return IoError(what + fmt::format(": the hub answered {}", status));
}

size_t TakeText(char* data, size_t size, size_t count, void* out) {
  auto* text = static_cast<std::string*>(out);
  if (text->size() + size * count > kMaxListBytes) return 0;
  text->append(data, size * count);
  return size * count;
}

struct Link {
  std::string next;  // URL of the next page; ""
};

// Link: <URL>; rel="next"
size_t TakeHeader(char* data, size_t size, size_t count, void* out) {
  const std::string line(data, size * count);
  std::string lower = line;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.rfind("link:", 0) == 0 && lower.find("rel=\"next\"") != std::string::npos) {
    const size_t open = line.find('<'), close = line.find('>');
    if (open != std::string::npos && close != std::string::npos && close > open) {
      static_cast<Link*>(out)->next = line.substr(open + 1, close - open - 1);
    }
  }
  return size * count;
}

Result<std::string> GetText(const HubOptions& options, const std::string& url, const std::string& what, Link* link) {
  HONE_TRY(const Easy curl, Prepare(options, url));
  std::string text;
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &TakeText);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &text);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, &TakeHeader);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, link);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, problem);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) {
    return IoError(what + ": " + options.hub +
                   " cannot be asked: " + (*problem != 0 ? problem : curl_easy_strerror(code)));
  }
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) return StatusError(status, what, !options.token.empty());
  return text;
}

class Digester {
 public:
  explicit Digester(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, kind, nullptr); }
  ~Digester() { EVP_MD_CTX_free(context_); }
  Digester(const Digester&) = delete;
  void Add(const void* data, size_t bytes) { EVP_DigestUpdate(context_, data, bytes); }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    EVP_DigestFinal_ex(context_, digest, &n);
    std::string hex;
    for (unsigned int i = 0; i < n; ++i) hex += fmt::format("{:02x}", static_cast<unsigned>(digest[i]));
    return hex;
  }

 private:
  EVP_MD_CTX* context_;
};

// Whether the file is what the hub says; `why` if not.
bool IsWhole(const std::string& path, const HubFile& file, std::string* why) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || bytes != file.bytes) {
    *why = fmt::format("has {} bytes, the hub says {}", error ? 0 : bytes, file.bytes);
    return false;
  }
  if (file.sha256.empty() && file.git_sha1.empty()) return true;
  Digester digester(file.sha256.empty() ? EVP_sha1() : EVP_sha256());
  if (file.sha256.empty()) {
    const std::string head = fmt::format("blob {}", file.bytes);
    digester.Add(head.c_str(), head.size() + 1);
  }
  std::ifstream stream(path, std::ios::binary);
  std::vector<char> chunk(1 << 20);
  while (stream.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), stream.gcount() > 0) {
    digester.Add(chunk.data(), static_cast<size_t>(stream.gcount()));
  }
  const std::string wanted = file.sha256.empty() ? file.git_sha1 : file.sha256, found = digester.Hex();
  if (found == wanted) return true;
  *why = "has the digest " + found + ", the hub says " + wanted;
  return false;
}

// One transfer into an open file.
struct Transfer {
  CURL* curl = nullptr;
  int fd = -1;
  uint64_t at = 0, most = 0;  // bytes there, bytes the file may have
  bool began = false, io_failed = false;
  const HubOptions* options = nullptr;
  const HubFile* file = nullptr;
};

size_t TakeFile(char* data, size_t size, size_t count, void* out) {
  auto* transfer = static_cast<Transfer*>(out);
  if (!std::exchange(transfer->began, true)) {
    long status = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    // A server that does not resume sends all of it again.
    if (status == 200 && transfer->at > 0) {
      if (::ftruncate(transfer->fd, 0) != 0 || ::lseek(transfer->fd, 0, SEEK_SET) != 0) return 0;
      transfer->at = 0;
    }
  }
  const size_t bytes = size * count;
  if (transfer->at + bytes > transfer->most) return 0;
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(transfer->fd, data + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      transfer->io_failed = true;
      return 0;
    }
    done += static_cast<size_t>(n);
  }
  transfer->at += bytes;
  if (transfer->options->progress)
    transfer->options->progress(transfer->file->path, transfer->at, transfer->file->bytes);
  return bytes;
}

// `retry`: another try may help.
Result<void> FetchOnce(const HubOptions& options, const HubName& name, const HubFile& file, const std::string& part,
                       bool* retry) {
  *retry = false;
  const std::string what = name.repository() + ":" + file.path;
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return IoError(part + ": cannot be written: " + std::strerror(errno));
  const off_t have = ::lseek(fd, 0, SEEK_END);
  if (have >= 0 && static_cast<uint64_t>(have) == file.bytes && file.bytes > 0) {
    ::close(fd);
    return {};
  }
  if (have < 0 || static_cast<uint64_t>(have) > file.bytes) (void)!::ftruncate(fd, 0), (void)::lseek(fd, 0, SEEK_SET);
  const std::string url = options.hub + "/" + name.repository() + "/resolve/main/" + EscapePath(file.path);
  Result<Easy> curl = Prepare(options, url);
  if (!curl) {
    ::close(fd);
    return curl.error();
  }
  Transfer transfer{.curl = curl->get(),
                    .fd = fd,
                    .at = static_cast<uint64_t>(std::max<off_t>(0, ::lseek(fd, 0, SEEK_CUR))),
                    .most = file.bytes,
                    .options = &options,
                    .file = &file};
  char problem[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl->get(), CURLOPT_WRITEFUNCTION, &TakeFile);
  curl_easy_setopt(curl->get(), CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl->get(), CURLOPT_ERRORBUFFER, problem);
  curl_easy_setopt(curl->get(), CURLOPT_FAILONERROR, 1L);
  if (transfer.at > 0) curl_easy_setopt(curl->get(), CURLOPT_RANGE, (std::to_string(transfer.at) + "-").c_str());
  const CURLcode code = curl_easy_perform(curl->get());
  const int closed = ::close(fd);
  long status = 0;
  curl_easy_getinfo(curl->get(), CURLINFO_RESPONSE_CODE, &status);
  if (transfer.io_failed || closed != 0) return IoError(part + ": cannot be written: " + std::strerror(errno));
  if (code == CURLE_HTTP_RETURNED_ERROR) {
    *retry = status == 408 || status == 429 || status >= 500;
    return StatusError(status, what, !options.token.empty());
  }
  if (code == CURLE_WRITE_ERROR)
    return IoError(what + fmt::format(": the hub sends more than the {} bytes it announced", file.bytes));
  if (code != CURLE_OK || transfer.at != file.bytes) {
    *retry = true;
    return IoError(what + fmt::format(": broke off after {} of {} bytes: {}", transfer.at, file.bytes,
                                      *problem != 0 ? problem : curl_easy_strerror(code)));
  }
  return {};
}

Result<void> Fetch(const HubOptions& options, const HubName& name, const HubFile& file, const std::string& path) {
  std::string why;
  std::error_code error;
  if (fs::exists(path, error) && IsWhole(path, file, &why)) return {};
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return IoError(path + ": its folder cannot be made: " + error.message());
  const std::string part = path + ".part";
  for (int tried = 1;; ++tried) {
    bool retry = false;
    Result<void> fetched = FetchOnce(options, name, file, part, &retry);
    if (!fetched && (!retry || tried == kTries)) return fetched;
    if (!fetched) {
      ::usleep(static_cast<useconds_t>(100000) << (2 * (tried - 1)));
      continue;
    }
    if (IsWhole(part, file, &why)) break;
    fs::remove(part, error);  // what is wrong is not resumed
    if (tried == kTries || tried > 1)
      return InvalidInput(name.repository() + ":" + file.path + ": what arrived " + why);
  }
  fs::rename(part, path, error);
  if (error) return IoError(path + ": " + error.message());
  return {};
}

bool EndsWith(const std::string& text, std::string_view end) { return std::string_view(text).ends_with(end); }

// "x-00001-of-00003.gguf": what is the same in all parts; "" if it is not one.
std::string SplitStem(const std::string& path) {
  constexpr std::string_view kForm = "-00001-of-00003.gguf";
  if (path.size() <= kForm.size() || !EndsWith(path, ".gguf")) return "";
  const std::string_view end = std::string_view(path).substr(path.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(kForm[i])) != 0 && i < 15;
    if (digit ? !std::isdigit(static_cast<unsigned char>(end[i])) : end[i] != kForm[i]) return "";
  }
  return path.substr(0, path.size() - kForm.size()) + std::string(end.substr(6));
}

std::string ListNames(const std::vector<HubFile>& files, std::string_view end) {
  std::string names;
  for (const HubFile& file : files) {
    if (EndsWith(file.path, end)) names += (names.empty() ? "" : ", ") + file.path;
  }
  return names;
}

bool IsModelFile(const std::string& path) {
  if (path.find('/') != std::string::npos) return path.rfind("additional_chat_templates/", 0) == 0;
  return EndsWith(path, ".safetensors") || EndsWith(path, ".json") || EndsWith(path, ".jinja") ||
         EndsWith(path, ".model") || path == "vocab.txt" || path == "merges.txt";
}

}  // namespace

std::optional<HubName> ParseHubName(const std::string& text) {
  HubName name;
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const size_t colon = text.find(':', slash);
  name.owner = text.substr(0, slash);
  name.name = text.substr(slash + 1, colon == std::string::npos ? colon : colon - slash - 1);
  if (!IsNamePart(name.owner) || !IsNamePart(name.name)) return std::nullopt;
  if (colon != std::string::npos) {
    name.file = text.substr(colon + 1);
    if (!IsSafePath(name.file)) return std::nullopt;
  }
  return name;
}

Result<HubOptions> HubOptionsFromEnvironment() {
  HubOptions options;
  if (const char* hub = std::getenv("HONE_HUB"); hub != nullptr && *hub != 0) options.hub = hub;
  while (EndsWith(options.hub, "/")) options.hub.pop_back();
  if (const std::string wrong = WrongServerUrl(options.hub); !wrong.empty()) {
    return UsageError("HONE_HUB is \"" + options.hub + "\", which is no URL of a hub: " + wrong + "; wanted https://HOST");
  }
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const char* token = std::getenv(name); token != nullptr && options.token.empty()) options.token = token;
  }
  if (const char* models = std::getenv("HONE_MODELS"); models != nullptr && *models != 0) {
    options.models = models;
  } else {
    options.models = UserPath(UserFolder::kCache, "models");
    if (options.models.empty()) return UsageError("there is no HOME to keep models in; set HONE_MODELS to a folder");
  }
  return options;
}

Result<std::vector<HubFile>> ListHubFiles(const HubOptions& options, const HubName& name) {
  std::vector<HubFile> files;
  std::string url = options.hub + "/api/models/" + name.repository() + "/tree/main?recursive=true";
  for (int page = 0; !url.empty() && page < 1000; ++page) {
    Link link;
    HONE_TRY(const std::string text, GetText(options, url, name.repository(), &link));
    const Json list = Json::parse(text, nullptr, false);
    if (!list.is_array()) return InvalidInput(name.repository() + ": the hub's list of files is not a JSON array");
    for (const Json& entry : list) {
      if (!entry.is_object() || entry.value("type", Json()) != Json("file")) continue;
      const Json path = entry.value("path", Json()), size = entry.value("size", Json()),
                 oid = entry.value("oid", Json());
      if (!path.is_string() || !size.is_number_unsigned() || !IsSafePath(path.get<std::string>())) continue;
      HubFile file{.path = path.get<std::string>(), .bytes = size.get<uint64_t>()};
      const Json lfs = entry.value("lfs", Json());
      if (lfs.is_object() && lfs.value("oid", Json()).is_string())
        file.sha256 = lfs.at("oid").get<std::string>();
      else if (oid.is_string() && oid.get_ref<const std::string&>().size() == 40)
        file.git_sha1 = oid.get<std::string>();
      files.push_back(std::move(file));
    }
    // The next page is the hub's own; anything else is not followed.
    url = link.next.rfind(options.hub + "/", 0) == 0 ? link.next : "";
  }
  return files;
}

Result<std::vector<HubFile>> ChooseHubFiles(const std::vector<HubFile>& files, const HubName& name) {
  std::vector<HubFile> chosen;
  std::string wanted = name.file;
  if (wanted.empty()) {
    const bool folder = std::any_of(files.begin(), files.end(), [](const HubFile& f) {
      return EndsWith(f.path, ".safetensors") && f.path.find('/') == std::string::npos;
    });
    if (folder) {
      std::copy_if(files.begin(), files.end(), std::back_inserter(chosen),
                   [](const HubFile& f) { return IsModelFile(f.path); });
      return chosen;
    }
    std::vector<std::string> models;  // GGUF files, of a split one the first part
    for (const HubFile& file : files) {
      const bool later_part = !SplitStem(file.path).empty() && file.path.find("-00001-of-") == std::string::npos;
      if (EndsWith(file.path, ".gguf") && !later_part) models.push_back(file.path);
    }
    if (models.empty()) {
      return NotFound(name.repository() + ": holds no GGUF file and no safetensors that hone could run (" +
                      std::to_string(files.size()) + " other files)");
    }
    if (models.size() > 1) {
      return UsageError(name.repository() + ": holds several models; choose one with " + name.repository() +
                        ":FILE of " + ListNames(files, ".gguf"));
    }
    wanted = models.front();
  }
  const std::string stem = SplitStem(wanted);
  for (const HubFile& file : files) {
    if (file.path == wanted || (!stem.empty() && SplitStem(file.path) == stem)) chosen.push_back(file);
  }
  if (chosen.empty()) {
    const std::string others = ListNames(files, ".gguf");
    return NotFound(name.repository() + ": has no file " + wanted + (others.empty() ? "" : "; it has " + others));
  }
  return chosen;
}

Result<std::string> PullFromHub(const HubOptions& options, const HubName& name) {
  HONE_TRY(const std::vector<HubFile> files, ListHubFiles(options, name));
  HONE_TRY(const std::vector<HubFile> chosen, ChooseHubFiles(files, name));
  const std::string folder = options.models + "/" + name.repository();
  for (const HubFile& file : chosen) HONE_RETURN_IF_ERROR(Fetch(options, name, file, folder + "/" + file.path));
  const bool weights_in_folder =
      std::any_of(chosen.begin(), chosen.end(), [](const HubFile& f) { return EndsWith(f.path, ".safetensors"); });
  if (name.file.empty() && weights_in_folder) return folder;
  std::vector<std::string> paths;
  for (const HubFile& file : chosen) paths.push_back(file.path);
  return folder + "/" + *std::min_element(paths.begin(), paths.end());
}

Result<std::string> LocalHubCopy(const HubOptions& options, const HubName& name) {
  const std::string folder = options.models + "/" + name.repository();
  const std::string asked = name.repository() + (name.file.empty() ? "" : ":" + name.file);
  std::error_code error;
  const Error missing = NotFound(asked + ": is not here; fetch it with: hone pull " + asked);
  if (!name.file.empty()) {
    if (fs::is_regular_file(folder + "/" + name.file, error)) return folder + "/" + name.file;
    return missing;
  }
  if (fs::is_regular_file(folder + "/config.json", error)) return folder;
  std::vector<std::string> models;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    const bool later_part = !SplitStem(path).empty() && path.find("-00001-of-") == std::string::npos;
    if (EndsWith(path, ".gguf") && !later_part) models.push_back(path);
  }
  if (models.empty()) return missing;
  if (models.size() > 1) {
    return UsageError(asked + ": several models of it are here; choose one with " + asked + ":FILE, like " +
                      fs::relative(models.front(), folder, error).string());
  }
  return models.front();
}

}  // namespace hone
