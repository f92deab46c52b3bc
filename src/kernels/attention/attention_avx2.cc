// Attention and KV stores for avx2: simd/avx2.h gives the Vec, attention_body.h the algorithm.
#include "kernels/simd/avx2.h"
#include "kernels/simd/functions.h"
#include "kernels/attention/attention_body.h"

namespace hone {

void AttentionAvx2(const AttentionTask& task) noexcept { AttendTask(task); }
void AttentionMergeAvx2(const AttentionTask& task) noexcept { MergeTask(task); }
void KvStoreAvx2(const KvStoreTask& task) noexcept { StoreTask(task); }

}  // namespace hone
