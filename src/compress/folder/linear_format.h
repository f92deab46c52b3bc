// LinearFormat: how one linear layer's weight [out, in] lies in a quantised Hugging Face folder: the tensors that take
// its place, their bytes, and what config.json says about them. One file a family of formats, one line in formats.inc.
// Layouts: docs/quantize.md and the formats' own pages.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "base/threads.h"
#include "compress/numbers/slices.h"
#include "compress/numbers/uniform.h"
#include "formats/named_tensor.h"
#include "tensor/float16.h"

namespace hone {

struct LinearScheme {
  std::string method;  // rtn, gptq, w8a8, fp8, mxfp8, mxfp4, nvfp4, nf4, fp4, llm-int8
  std::string format;  // compressed-tensors, gptq, awq, bitsandbytes, fp8, hqq
  int bits = 4;
  int64_t group = 128;  // columns; 0: a whole row
  bool symmetric = true;
  // gptq: the order of columns. group: groups stay whole; static: by activation, groups as they lie; activation: by
  // activation, groups in that order (the file tells each column's group); natural.
  std::string order = "group";
  int zeros_version = 0;      // gptq: 1 stores zero - 1, 2 the zero; 0: 1 where symmetric, else 2
  Clip clip = Clip::kMinMax;  // rtn: how the range of a group is found
  bool static_activations = false;  // smoothquant: one scale of activations a layer, in the file
  bool per_tensor = false;          // w8a8, fp8: one scale a matrix, the same where engines fuse several, not one a row
  bool e5m2 = false;                // fp8: E5M2, not E4M3
};

// Weights as a reader gets them against the original: sums of squares of the difference and of the original, the largest difference.
struct Deviation {
  double error = 0, power = 0, largest = 0;
};

struct LinearWeight {
  const float* w = nullptr;  // [rows, columns]; nullptr: only `read` gives them
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kBF16;  // of the original: F32, F16 or BF16
  float shared_amax = 0;       // largest |w| of the layers that one engine fuses with this one (q, k, v; gate, up)
  float input_amax = 0;        // largest |x| that calibration saw; for formats with static activations
  // Rows [first, first + count) to place[count, columns]; thread-safe.
  std::function<void(int64_t first, int64_t count, float* place)> read = nullptr;
  // Called, where set and the format does so, as soon as the outputs hold these rows as Decode gives them; thread-safe.
  // `read`: the rows where they are at hand, or else nullptr.
  std::function<void(int64_t first, int64_t count, const float* read)> made = nullptr;
  // Set, where there is one and the format compares(), to all that Decode gives against this weight.
  Deviation* deviation = nullptr;

  // These rows: where they lie, or read into `place`.
  const float* Rows(int64_t first, int64_t count, float* place) const {
    if (w != nullptr) return w + first * columns;
    read(first, count, place);
    return place;
  }
};

// Codes that a method has chosen for a layer [rows, columns].
struct LinearCodes {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kBF16;           // of the original
  std::span<const uint8_t> codes;       // [rows, columns], 0 .. 2^b - 1
  std::span<const Grid> grids;          // [rows, groups]; scales as the format stores them, whole zeros in the codes' range
  std::span<const int32_t> group_of;    // [columns]
};

class LinearFormat {
 public:
  virtual ~LinearFormat() = default;

  // Whether a weight of this shape can be written; an error says why not.
  virtual Result<void> Check(int64_t rows, int64_t columns) const = 0;
  // The tensors that take the place of `module`.weight.
  virtual std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns,
                                          DType dtype) const = 0;
  // Whether Encode takes rows as it goes (LinearWeight::Rows), so that the matrix need not be in memory.
  virtual bool reads_rows() const { return true; }
  // Their bytes, in that order. outputs[i] has the size of Outputs()[i] and starts as zeros, or as anything unless wants_zeros().
  virtual void Encode(const LinearWeight& weight, std::span<std::vector<std::byte>> outputs,
                      ThreadPool& threads) const = 0;
  virtual bool wants_zeros() const { return false; }
  // Whether it calls LinearWeight::made, for every row once.
  virtual bool tells_rows() const { return false; }
  // Whether it sets LinearWeight::deviation: for formats that know no row before the last one is read.
  virtual bool compares() const { return false; }
  // The same from codes. REQUIRES: takes_codes().
  virtual bool takes_codes() const { return false; }
  virtual DType scale_type(DType dtype) const { return dtype; }
  virtual void EncodeCodes(const LinearCodes& codes, std::span<std::vector<std::byte>> outputs,
                           ThreadPool& threads) const;
  // What a reader makes of them: rows [first, first + count) to w.
  virtual void Decode(std::span<const std::span<const std::byte>> outputs, int64_t rows, int64_t columns, DType dtype,
                      int64_t first, int64_t count, float* w) const = 0;
  // The same a row after the other.
  virtual void DecodeRows(std::span<const std::span<const std::byte>> outputs, int64_t rows, int64_t columns, DType dtype,
                          int64_t first, int64_t count, FunctionRef<void(int64_t row, const float* w)> visit) const;
  // Rows that Encode and DecodeRows best take together, beginning at a multiple of them.
  virtual int64_t rows_together() const { return 1; }
  // quantization_config of config.json, a JSON object.
  virtual std::string ConfigJson(DType dtype) const = 0;
  // Further files of the folder: name, contents.
  virtual std::vector<std::pair<std::string, std::string>> Files(DType) const { return {}; }
  virtual bool needs_shared_amax() const { return false; }

 protected:
  friend Result<std::unique_ptr<LinearFormat>> MakeLinearFormat(const LinearScheme& scheme, Isa isa);
  const Slices* slices_ = &kSlicesV2;
};

// isa: the vectors that it uses; bytes are the same with all. Errors (kUsage) list what can be combined.
Result<std::unique_ptr<LinearFormat>> MakeLinearFormat(const LinearScheme& scheme, Isa isa = Isa::kScalar);

// A number as a tensor of this dtype stores it.
inline float RoundTo(DType dtype, float x) {
  return dtype == DType::kF16 ? F16ToF32(F32ToF16(x)) : dtype == DType::kBF16 ? Bf16ToF32(F32ToBf16(x)) : x;
}
void StoreAs(DType dtype, float x, std::byte* out);
float LoadAs(DType dtype, const std::byte* in);

}  // namespace hone
