// Attention on AMX-BF16: attention_tiles_amx.h gives the tile loops, attention_tiles.h the algorithm.
#include "kernels/attention/attention_tiles_amx.h"
#include "kernels/attention/attention_tiles.h"

namespace hone {

void AttentionAmx(const AttentionTask& task) noexcept {
  ConfigureTiles(task.row_end - task.row_begin);
  AttendOnTiles(task);
  _tile_release();
}

void AttentionMergeAmx(const AttentionTask& task) noexcept { MergeTask(task); }
void KvStoreAmx(const KvStoreTask& task) noexcept { StoreTask(task); }

}  // namespace hone
