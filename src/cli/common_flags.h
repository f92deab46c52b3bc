// Flags that every command takes, and what they are turned into: a Runtime, an opened model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/runtime.h"
#include "engine/engine.h"

namespace hone {

class Flags;

struct CommonFlags {
  int threads = 0;            // 0: physical cores that this process may use
  bool pin = false;           // worker threads stay on a core each
  std::string isa = "auto";
  int ctx = 0;                // 0: the model's context, at most kMaxDefaultContext
  std::string kv;             // "": what the command takes by itself
  std::optional<uint64_t> seed;
  bool exact = false;
  bool deterministic = false;
  bool packed_cache = false;
  std::string pre;            // forces a pre-tokenizer kind; "" as the model says
  bool json = false;
  bool quiet = false;
  bool verbose = false;

  // What --kv says, `usual` if it is not given.
  Result<KvType> kv_type(KvType usual = KvType::kBF16) const;
  std::string kv_name() const { return kv.empty() ? "bf16" : kv; }
  std::string packed_cache_folder() const;  // LoadOptions::packed_cache; "": --packed-cache is not given, or there is no place
  bool progress() const;      // stderr is a terminal and --quiet is not given
};

void AddCommonFlags(Flags& flags, CommonFlags* common);

// The Runtime and everything it points to, made once a process.
class RuntimeOwner {
 public:
  static Result<std::unique_ptr<RuntimeOwner>> Create(const CommonFlags& flags);
  const Runtime& runtime() const { return runtime_; }

 private:
  explicit RuntimeOwner(const CommonFlags& flags);
  CpuFacts cpu_;
  Log log_;
  Clock clock_;
  std::unique_ptr<ThreadPool> threads_;
  Runtime runtime_;
};

}  // namespace hone
