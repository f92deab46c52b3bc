// fuzzes: measure
// JSONL of tasks: every line is an item or one error that names it; never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "measure/tasks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const hone::TaskFormat& format :
       {hone::TaskFormat{}, hone::TaskFormat{.shots = 1, .prefix = "x", .frame = "<{}>"}}) {
    const auto set = hone::ParseTasks("fuzz", text, format);
    if (!set) continue;
    for (const hone::TaskItem& item : set->items) hone::NormaliseAnswer(item.answer);
  }
  return 0;
}
