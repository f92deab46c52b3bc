// fuzzes: measure
// Files that a load client sends: every item is a task or one error that names it; memory stays bounded.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "measure/load/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const hone::DatasetKind kind : {hone::DatasetKind::kFile, hone::DatasetKind::kTrace}) {
    hone::DatasetSpec spec;
    spec.kind = kind;
    spec.word_tokens = {0, 50, true};  // short texts: what is made of a length is not what is looked for here
    const auto tasks = hone::MakeTasks(spec, text, 3, 1);
    if (tasks && tasks->size() > 3) __builtin_trap();
  }
  return 0;
}
