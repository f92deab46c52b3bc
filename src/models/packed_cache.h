// Files of packed panels: what LoadWeights makes of a checkpoint, kept, so that the next start maps it and packs nothing.
//
//   [magic "HONEPANL", 8 bytes][kPanelLayout, u32][0, u32][bytes of panels, u64][key, 32 characters][zeros to 4096][panels]
//
// The key is a digest of the checkpoint (Checkpoint::Digest) and of the size and time of change of its files, so that weights
// that changed under the same name are packed again. The file is for this machine alone: little-endian, as the panels are.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/memory.h"
#include "base/result.h"
#include "formats/checkpoint.h"

namespace hone {

struct PackedCacheFile {
  std::string path;  // FOLDER/NAME-KEY.panels
  std::string key;
};

// Where the panels of `checkpoint` are kept below `folder`. `exact` (LoadOptions) changes the types that some folders run as.
PackedCacheFile FindPackedCache(const Checkpoint& checkpoint, bool exact, const std::string& folder);

// The file, if it is there, whole, of this layout and key and holds `bytes` of panels; else nullptr: it is not an error to have none.
std::shared_ptr<const MappedFile> OpenPackedCache(const PackedCacheFile& file, size_t bytes);
// Its panels. REQUIRES: OpenPackedCache gave it.
std::span<const std::byte> PanelsOf(const MappedFile& file);

// Makes the folder if need be. The file appears whole or not at all. Errors name the path: no space, no permission.
Result<void> WritePackedCache(const PackedCacheFile& file, std::span<const std::byte> panels);

}  // namespace hone
