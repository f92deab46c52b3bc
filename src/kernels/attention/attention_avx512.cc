// Attention and KV stores for avx512: simd/avx512.h gives the Vec, attention_body.h the algorithm.
#include "kernels/simd/avx512.h"
#include "kernels/simd/functions.h"
#include "kernels/attention/attention_body.h"

namespace hone {

void AttentionAvx512(const AttentionTask& task) noexcept { AttendTask(task); }
void AttentionMergeAvx512(const AttentionTask& task) noexcept { MergeTask(task); }
void KvStoreAvx512(const KvStoreTask& task) noexcept { StoreTask(task); }

}  // namespace hone
