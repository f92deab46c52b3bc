// Tenants: who may call, by API key. One tenant a line of a key file:
//
//   # name: key [rate=N/s|N/m|N/h] [burst=N] [priority=N] [salt=TEXT]
//   alice: sk-4f0c...            rate=120/m burst=20
//   batch: sk-9d1e...            priority=5
//
// Keys are kept as SHA-256 digests and compared in constant time against every tenant, so neither an answer nor its
// time tells how near a guess was. A tenant's salt (default: made of its key) goes into the prefix cache's keys, so
// that tenants cannot probe each other's prompts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

using Digest = std::array<uint8_t, 32>;
Digest Sha256(std::string_view bytes);
// Takes the same time for all digests.
bool SameDigest(const Digest& a, const Digest& b);

struct Tenant {
  std::string name;
  Digest key{};
  std::string salt;
  int priority = 0;  // as in a request: lower is served first
  double rate = 0;   // requests a second on average; 0: no limit
  double burst = 0;  // at once

  // A token of the bucket; otherwise the seconds until there is one. `now`: seconds of a monotonic clock. Any thread.
  double Wait(double now);

 private:
  std::mutex mutex_;
  double tokens_ = -1, filled_at_ = 0;
};

class Tenants {
 public:
  // The lines of a key file; `from` names it in errors. Errors: a line that is not one, a name or key that is there
  // twice, options that are not known. A file without tenants is an error: it would close the server to all.
  // So is one above 4 MiB.
  static Result<Tenants> Parse(std::string_view text, const std::string& from);
  static Result<Tenants> Read(const std::string& path);

  bool empty() const { return tenants_.empty(); }
  size_t count() const { return tenants_.size(); }
  // nullptr: nobody has this key.
  Tenant* Find(std::string_view key) const;

 private:
  std::vector<std::unique_ptr<Tenant>> tenants_;
};

}  // namespace hone
