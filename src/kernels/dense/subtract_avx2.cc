// SubtractProduct with vectors of 32 bytes.
#define HONE_DENSE_BYTES 32
#define HONE_DENSE_ROWS 4
#include "kernels/dense/subtract_body.h"

namespace hone {

void SubtractProductAvx2(const SubtractArgs<float>& args) noexcept;
void SubtractProductAvx2(const SubtractArgs<double>& args) noexcept;

void SubtractProductAvx2(const SubtractArgs<float>& args) noexcept { Subtract(args); }
void SubtractProductAvx2(const SubtractArgs<double>& args) noexcept { Subtract(args); }

}  // namespace hone
