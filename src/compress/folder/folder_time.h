// How long a folder takes to make, from a sample on this machine: for plans.
#pragma once

#include "base/runtime.h"
#include "compress/folder/quantize_folder.h"

namespace hone {

// Seconds to read, code, compare and write all of the plan once codes need no calibration (GPTQ's own work and searches over text
// come on top). Takes about a tenth of a second.
double EstimateFolderSeconds(const FolderPlan& plan, const LinearFormat& format, const LinearScheme& scheme, const Runtime& runtime);

}  // namespace hone
