// See tenants.h. SHA-256 is OpenSSL's.
#include "serve/tenants.h"

#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace hone {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr size_t kMinKeyBytes = 8;
constexpr size_t kMaxFileBytes = 4u << 20;  // every request is compared with every key

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool ReadNumber(std::string_view text, double* out) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *out);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && std::isfinite(*out);
}

// name=value
Result<void> ReadOption(std::string_view option, Tenant* tenant) {
  const size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  double number = 0;
  if (name == "rate") {
    const size_t slash = value.find('/');
    const std::string_view unit = slash == std::string_view::npos ? std::string_view() : value.substr(slash + 1);
    const double seconds = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
    if (seconds == 0 || !ReadNumber(value.substr(0, slash), &number) || number <= 0) {
      return InvalidInput("rate: found \"" + std::string(value) +
                          "\", wanted requests by time like 10/s, 120/m or 500/h");
    }
    tenant->rate = number / seconds;
  } else if (name == "burst") {
    if (!ReadNumber(value, &number) || number < 1) {
      return InvalidInput("burst: found \"" + std::string(value) + "\", wanted a number of requests from 1");
    }
    tenant->burst = number;
  } else if (name == "priority") {
    if (!ReadNumber(value, &number) || std::floor(number) != number || std::fabs(number) > 1e6) {
      return InvalidInput("priority: found \"" + std::string(value) +
                          "\", wanted a whole number (lower is served first)");
    }
    tenant->priority = static_cast<int>(number);
  } else if (name == "salt") {
    if (value.empty()) return InvalidInput("salt: is empty");
    tenant->salt = value;
  } else {
    return InvalidInput("unknown option \"" + std::string(name) + "\"; known: rate, burst, priority, salt");
  }
  return {};
}

Result<std::unique_ptr<Tenant>> ReadTenant(std::string_view line) {
  const size_t colon = line.find(':');
  auto tenant = std::make_unique<Tenant>();
  if (colon != std::string_view::npos) tenant->name = Trim(line.substr(0, colon));
  if (tenant->name.empty() || tenant->name.find_first_of(kBlank) != std::string::npos) {
    return InvalidInput("wanted \"name: key\", a name without spaces");
  }
  std::string_view rest = Trim(line.substr(colon + 1));
  const size_t key_end = std::min(rest.find_first_of(kBlank), rest.size());
  const std::string_view key = rest.substr(0, key_end);
  if (key.size() < kMinKeyBytes) {
    return InvalidInput("the key of " + tenant->name + " has " + std::to_string(key.size()) +
                        " characters, wanted at least " + std::to_string(kMinKeyBytes));
  }
  tenant->key = Sha256(key);
  for (rest = Trim(rest.substr(key_end)); !rest.empty();) {
    const size_t end = std::min(rest.find_first_of(kBlank), rest.size());
    HONE_RETURN_IF_ERROR(ReadOption(rest.substr(0, end), tenant.get()));
    rest = Trim(rest.substr(end));
  }
  if (tenant->burst > 0 && tenant->rate == 0) return InvalidInput("burst: says nothing without rate");
  if (tenant->rate > 0 && tenant->burst == 0) tenant->burst = std::max(1.0, tenant->rate);
  if (tenant->salt.empty()) {
    const Digest digest = Sha256("hone prefix cache salt\n" + std::string(key));
    tenant->salt.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  return tenant;
}

}  // namespace

Digest Sha256(std::string_view bytes) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

bool SameDigest(const Digest& a, const Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

double Tenant::Wait(double now) {
  if (rate <= 0) return 0;
  std::lock_guard lock(mutex_);
  tokens_ = tokens_ < 0 ? burst : std::min(burst, tokens_ + (now - filled_at_) * rate);
  filled_at_ = now;
  if (tokens_ >= 1) {
    tokens_ -= 1;
    return 0;
  }
  return (1 - tokens_) / rate;
}

Result<Tenants> Tenants::Parse(std::string_view text, const std::string& from) {
  Tenants tenants;
  std::set<std::string> names;
  std::map<Digest, std::string> keys;  // to the name of their tenant
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string where = from + ":" + std::to_string(number);
    HONE_TRY(std::unique_ptr<Tenant> tenant, ReadTenant(line).Context(where));
    if (!names.insert(tenant->name).second) return InvalidInput(where + ": " + tenant->name + " is there twice");
    if (const auto [other, is_new] = keys.emplace(tenant->key, tenant->name); !is_new) {
      return InvalidInput(where + ": " + tenant->name + " has the same key as " + other->second);
    }
    tenants.tenants_.push_back(std::move(tenant));
  }
  if (tenants.empty()) return InvalidInput(from + ": holds no key; wanted lines \"name: key\"");
  return tenants;
}

Result<Tenants> Tenants::Read(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return InvalidInput(path + ": is a folder; --api-keys wants a file of lines \"name: key\"");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": the file of API keys cannot be read");
  // By pieces: a pipe has no size, and a device has no end.
  std::string text;
  for (char piece[4096]; file.read(piece, sizeof piece) || file.gcount() > 0;) {
    text.append(piece, static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes) {
      return InvalidInput(path + ": holds more than " + std::to_string(kMaxFileBytes >> 20) +
                          " MiB, too much for a file of API keys");
    }
  }
  if (file.bad()) return NotFound(path + ": the file of API keys cannot be read to its end");
  return Parse(text, path);
}

Tenant* Tenants::Find(std::string_view key) const {
  const Digest digest = Sha256(key);
  Tenant* found = nullptr;
  for (const auto& tenant : tenants_) {  // all of them, always
    if (SameDigest(tenant->key, digest)) found = tenant.get();
  }
  return found;
}

}  // namespace hone
