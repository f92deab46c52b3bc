// Which type each tensor of a GGUF file gets under a named file type (Q4_K_M ...): the rules of llama.cpp's quantizer,
// so that a file of a name holds what users of that name expect. Tables: docs/quantize.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/named_tensor.h"
#include "tensor/dtype.h"

namespace hone {

enum class GgufFileTypeId {
#define HONE_GGUF_FILE_TYPE(name, id, type) k##name = id,
#include "compress/gguf/file_types.inc"
#undef HONE_GGUF_FILE_TYPE
};

struct GgufFileType {
  std::string_view name;
  GgufFileTypeId id;  // general.file_type
  DType type;         // of most matrices
};

// In any case ("q4_k_m"); Q3_K, Q4_K and Q5_K mean their _M. An error lists the names, and says of a known name that is
// missing why.
Result<const GgufFileType*> FindGgufFileType(std::string_view name);
const std::vector<GgufFileType>& GgufFileTypes();

struct MixtureOptions {
  const GgufFileType* file_type = nullptr;
  bool pure = false;        // every matrix gets the file type's own type
  bool importance = false;  // an importance matrix is given
  std::string architecture;
  int layers = 0, heads = 0, kv_heads = 0, experts = 0;
};

struct TensorType {
  DType type;
  std::string note;  // why the type is not what the name of the file says; "" if it is
};

// Whether llama.cpp's quantizer touches this tensor: a matrix named *.weight that is no norm, router or small state
// matrix.
bool IsQuantizable(const TensorInfo& tensor);

// The types of all `tensors`, in their order. Tensors that are not quantised keep theirs. A row that the wanted type
// does not divide gets the nearest type that does (F16 at last), with a note.
// REQUIRES: tensors in the order of GgufOrder (rules count layers as they come).
std::vector<TensorType> ChooseTypes(const std::vector<TensorInfo>& tensors, const MixtureOptions& options);

// The order of llama.cpp's quantizer: tensors outside layers by name, then layer by layer by name.
bool GgufOrder(std::string_view a, std::string_view b);

}  // namespace hone
