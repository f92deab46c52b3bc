// Attention on AVX-512 BF16: attention_tiles_bf16.h gives the tile loops, attention_tiles.h the algorithm.
#include "kernels/attention/attention_tiles_bf16.h"
#include "kernels/attention/attention_tiles.h"

namespace hone {

void AttentionBf16(const AttentionTask& task) noexcept { AttendOnTiles(task); }
void AttentionMergeBf16(const AttentionTask& task) noexcept { MergeTask(task); }
void KvStoreBf16(const KvStoreTask& task) noexcept { StoreTask(task); }

}  // namespace hone
