// config.json of a folder whose matrices were written in another format.
#pragma once

#include <string>

#include "base/result.h"

namespace hone {

// The text of `path` with this quantization_config in place of what was there ("": none), and `dtype` in place of torch_dtype or
// dtype ("": as it is). From GPTQ to GPTQ, what the file says beyond the new configuration stays. Errors name the file.
Result<std::string> EditFolderConfig(const std::string& path, const std::string& quantization, const std::string& dtype);

}  // namespace hone
