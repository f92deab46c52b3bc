// See unused_tensors.h.
#include "cli/unused_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/family.h"
#include "models/model.h"

namespace hone {

std::vector<std::string> WarningsAndUnused(const Checkpoint& checkpoint, const char* become) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> warnings = checkpoint.warnings();
  const auto family = FindFamily(checkpoint);
  const auto config = ReadModelConfig(checkpoint);
  if (!checkpoint.is_folder() || !family || !config) return warnings;
  const auto map = WeightMap::Make(checkpoint, **family, *config);
  if (!map || map->unused().empty()) return warnings;  // who needs the map says what is wrong with it
  std::string names;
  for (size_t i = 0; i < std::min(map->unused().size(), kNamed); ++i) names += (i > 0 ? ", " : "") + map->unused()[i];
  warnings.push_back(fmt::format("{}: {} tensors are not part of a {} model and are {}: {}{}", checkpoint.path(), map->unused().size(),
                                 (*family)->name, become, names, map->unused().size() > kNamed ? ", ..." : ""));
  return warnings;
}

}  // namespace hone
