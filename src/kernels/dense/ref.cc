// SubtractProduct with vectors of 16 bytes.
#define HONE_DENSE_BYTES 16
#define HONE_DENSE_ROWS 4
#include "kernels/dense/subtract_body.h"

namespace hone {

void SubtractProductScalar(const SubtractArgs<float>& args) noexcept;
void SubtractProductScalar(const SubtractArgs<double>& args) noexcept;

void SubtractProductScalar(const SubtractArgs<float>& args) noexcept { Subtract(args); }
void SubtractProductScalar(const SubtractArgs<double>& args) noexcept { Subtract(args); }

}  // namespace hone
