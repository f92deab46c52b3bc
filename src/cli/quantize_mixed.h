// Types under a budget of bits or bytes, for hone quantize: collects what is needed (an importance matrix, how much each
// matrix matters) from calibration text, and chooses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "cli/calibration_text.h"
#include "cli/common_flags.h"
#include "compress/imatrix/imatrix.h"
#include "compress/tensor_source.h"
#include "formats/checkpoint.h"

namespace hone {

struct MixedRequest {
  uint64_t bytes = 0;             // of all tensors of the file
  CalibrationFlags calibration;
  bool measured = true;           // --sensitivity measured
  const Imatrix* imatrix = nullptr;  // given; nullptr: collected
  std::string out;                // files of work in progress begin with this
  std::string sensitivities;      // --sensitivities FILE; "": beside OUT until the job is done
  bool plan = false;              // nothing is collected, measured or written: only what is there already counts
  bool resume = false;            // what an earlier run has collected and measured counts
  uint64_t memory_bytes = 0;
  std::map<std::string, DType> fixed;  // types that a recipe gives
};

struct MixedTypes {
  std::map<std::string, DType> types;
  std::optional<Imatrix> imatrix;  // collected here
  std::vector<std::string> notes;  // how the types were chosen, for people
  double seconds = 0;              // of a plan: what collecting and measuring will take
};

// Errors: a budget that is too small, a stop. A model that hone does not run is no error: types are then chosen by errors of
// weights, and a note says so.
Result<MixedTypes> ChooseMixedTypes(const MixedRequest& request, const TensorSource& source,
                                    const std::shared_ptr<const Checkpoint>& checkpoint, const CommonFlags& flags,
                                    const Runtime& runtime);

// What an earlier run has written down, and the matrix that it collected; nullopt if it has not.
Result<std::optional<MixedTypes>> ReadMixedTypes(const std::string& out, const TensorSource& source);
bool HasMixedTypes(const std::string& out);
// What was measured for them so far: where it waits for --resume, and all of these files.
std::string KeptSensitivities(const std::string& out);
void RemoveMixedTypes(const std::string& out);

}  // namespace hone
