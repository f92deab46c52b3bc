// See common_flags.h.
#include "cli/common_flags.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/user_path.h"
#include "cli/flags.h"

namespace hone {

Result<KvType> CommonFlags::kv_type(KvType usual) const {
  if (kv.empty()) return usual;
  if (kv == "f32") return KvType::kF32;
  if (kv == "f16") return KvType::kF16;
  if (kv == "bf16") return KvType::kBF16;
  if (kv == "int8") return KvType::kI8;
  return UsageError("--kv '" + kv + "' is not known; use f32, f16, bf16 or int8");
}

std::string CommonFlags::packed_cache_folder() const {
  return packed_cache ? UserPath(UserFolder::kCache, "packed") : "";
}

bool CommonFlags::progress() const { return !quiet && isatty(STDERR_FILENO) != 0; }

void AddCommonFlags(Flags& flags, CommonFlags* common) {
  const char* group = "Common";
  flags.Add("--threads", common->threads, "threads for the work (default: the physical cores this process may use)")
      ->range(1, 1024)->group(group);
  flags.AddSwitch("--pin", common->pin, "keep each worker thread on a physical core of its own")->group(group);
  flags.Add("--isa", common->isa, "highest instruction set to use: scalar, avx2, avx512, amx or auto")
      ->show_default()->group(group);
  flags.Add("--ctx", common->ctx, "longest sequence in tokens (default: the model's context, at most 8192)")
      ->range(1, 1 << 30)->group(group);
  flags.Add("--kv", common->kv, "type of cached keys and values: f32, f16, bf16 or int8 (default: bf16; logits: f32)")
      ->group(group);
  flags.Add("--seed", common->seed, "seed of sampling (default: random, reported)")
      ->fits_64_bits()->group(group);
  flags.AddSwitch("--exact", common->exact, "32-bit activations everywhere, also with quantised weights; slower")->group(group);
  flags.AddSwitch("--deterministic", common->deterministic,
               "the same bits whatever the batch, the chunks and the cache hits; seed 0 unless --seed is given; slower prompts with AMX or AVX-512 BF16")->group(group);
  flags.AddSwitch("--packed-cache", common->packed_cache,
               "keep the weights as kernels want them in ~/.cache/hone/packed (as large as the model) and map them on the next start")
      ->group(group);
  flags.Add("--pre", common->pre, "force a pre-tokenizer kind when a GGUF names none or an unknown one")->group(group);
  flags.AddSwitch("--json", common->json, "the result as one JSON object (JSON lines where it streams)")->group(group);
  flags.AddSwitch("--quiet", common->quiet, "no progress and no statistics on stderr")->group(group);
  flags.AddSwitch("-v,--verbose", common->verbose, "say more on stderr")->group(group);
}

RuntimeOwner::RuntimeOwner(const CommonFlags& flags)
    : cpu_(ReadCpuFacts()),
      log_(flags.quiet ? LogLevel::kWarn : flags.verbose ? LogLevel::kDebug : LogLevel::kInfo) {}

Result<std::unique_ptr<RuntimeOwner>> RuntimeOwner::Create(const CommonFlags& flags) {
  std::unique_ptr<RuntimeOwner> owner(new RuntimeOwner(flags));
  HONE_TRY(const Isa isa, ResolveIsa(owner->cpu_, flags.isa));
  const int wanted = flags.threads > 0 ? flags.threads : owner->cpu_.physical_cores;
  owner->threads_ = std::make_unique<ThreadPool>(wanted, flags.pin ? std::span<const int>(owner->cpu_.core_cpus) : std::span<const int>{});
  if (const int count = owner->threads_->count(); count < wanted) {
    owner->log_.Warn("{} of {} threads could be started, so all takes longer: the system limits processes (ulimit -u, the container's "
                     "limit) or memory; --threads {} asks for no more", count, wanted, count);
  }
  owner->runtime_ = Runtime{&owner->cpu_, isa, owner->threads_.get(), &owner->log_, &owner->clock_};
  owner->log_.Debug("{}: {} threads, kernels up to {} (CPU offers {})", owner->cpu_.brand, owner->threads_->count(),
                    IsaName(isa), IsaName(owner->cpu_.best_isa()));
  return owner;
}

}  // namespace hone
