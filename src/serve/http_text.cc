// See http_text.h. No allocation beyond the results, no failure: any bytes give a path, a query and an id.
#include "serve/http_text.h"

#include <cstdint>
#include <cstdio>
#include <random>

#include "base/random.h"
#include "serve/http.h"
#include "serve/limits.h"

namespace hone {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

void SplitTarget(std::string_view target, std::string* path, std::string* query) {
  if (const size_t scheme = target.find("://"); scheme != std::string_view::npos && target.front() != '/') {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const size_t mark = target.find('?');
  *query = mark == std::string_view::npos ? "" : std::string(target.substr(mark + 1));
  target = target.substr(0, mark);
  path->clear();
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == '%' && i + 2 < target.size() && HexValue(target[i + 1]) >= 0 && HexValue(target[i + 2]) >= 0) {
      path->push_back(static_cast<char>(HexValue(target[i + 1]) * 16 + HexValue(target[i + 2])));
      i += 2;
    } else {
      path->push_back(target[i]);
    }
  }
}

std::string RandomId(std::string_view prefix) {
  // Ids need to be unlike each other, not secret.
  std::random_device device;
  Rng rng((uint64_t{device()} << 32) ^ device());
  char text[32];
  std::snprintf(text, sizeof text, "%012llx%012llx", static_cast<unsigned long long>(rng.Next() >> 16),
                static_cast<unsigned long long>(rng.Next() >> 16));
  return std::string(prefix) + text;
}

std::string RequestIdOf(std::string_view sent) {
  if (sent.empty() || sent.size() > kMaxRequestIdBytes) return RandomId("req_");
  for (const char c : sent) {
    const bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      std::string_view("-_.:/+=").find(c) != std::string_view::npos;
    if (!fine) return RandomId("req_");
  }
  return std::string(sent);
}

}  // namespace hone
