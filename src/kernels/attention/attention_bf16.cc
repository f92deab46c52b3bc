// Attention on AVX-512 BF16: attention_tiles_bf16.h gives the tile loops, attention_tiles.h the algorithm, attention_query_bf16.h what
// decoding does instead.
#include "kernels/attention/attention_tiles_bf16.h"
#include "kernels/attention/attention_tiles.h"
#include "kernels/attention/attention_query_bf16.h"

namespace hone {

void AttentionBf16(const AttentionTask& task) noexcept { task.heads > 0 ? AttendQuery(task) : AttendOnTiles(task); }
void AttentionMergeBf16(const AttentionTask& task) noexcept { MergeTask(task); }
void KvStoreBf16(const KvStoreTask& task) noexcept { StoreTask(task); }

}  // namespace hone
