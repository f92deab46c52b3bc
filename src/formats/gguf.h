// GGUF v2/v3: one file, or the parts of a split opened through the first. Layout and checks: docs/formats/gguf.md.
// Writing tensor by tensor, without holding them all: formats/gguf_writer.h.
//
// Everything that comes from the file is checked in Open; after that no accessor can run past a buffer. Tensor data
// stays in the mapping (data at an address that its elements do not allow is held as an aligned copy). A GgufFile is
// immutable and may be read from many threads; views live as long as it does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "formats/named_tensor.h"
#include "tensor/tensor.h"

namespace hone {

// Metadata value types, with the ids of the file.
enum class GgufType : uint32_t {
  kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10,
  kI64 = 11, kF64 = 12,
};

// A scalar keeps its exact file type in `type`; its value is widened. Arrays hold one element type (never arrays).
struct GgufValue {
  GgufType type = GgufType::kU32;
  GgufType element_type = GgufType::kU32;  // of an array
  std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>, std::vector<int64_t>,
               std::vector<double>, std::vector<bool>, std::vector<std::string>>
      value;
  bool operator==(const GgufValue&) const = default;

  // What writers use most.
  static GgufValue U16(uint16_t x) { return {GgufType::kU16, GgufType::kU32, uint64_t{x}}; }
  static GgufValue U32(uint32_t x) { return {GgufType::kU32, GgufType::kU32, uint64_t{x}}; }
  static GgufValue U64(uint64_t x) { return {GgufType::kU64, GgufType::kU32, x}; }
  static GgufValue I32(int32_t x) { return {GgufType::kI32, GgufType::kU32, int64_t{x}}; }
  static GgufValue F32(float x) { return {GgufType::kF32, GgufType::kU32, double{x}}; }
  static GgufValue Bool(bool x) { return {GgufType::kBool, GgufType::kU32, x}; }
  static GgufValue String(std::string x) { return {GgufType::kString, GgufType::kU32, std::move(x)}; }
  static GgufValue Strings(std::vector<std::string> x) { return {GgufType::kArray, GgufType::kString, std::move(x)}; }
  // REQUIRES: every element fits the named type (writing checks it).
  static GgufValue I32s(std::vector<int64_t> x) { return {GgufType::kArray, GgufType::kI32, std::move(x)}; }
  static GgufValue U32s(std::vector<uint64_t> x) { return {GgufType::kArray, GgufType::kU32, std::move(x)}; }
  static GgufValue F32s(std::vector<double> x) { return {GgufType::kArray, GgufType::kF32, std::move(x)}; }
};

class GgufFile {
 public:
  // A file that names itself a split opens all parts (found by the -%05d-of-%05d pattern beside it); `path` must be
  // part 1.
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t file_bytes() const;  // all parts

  // Metadata of part 1 (split.* included), in file order.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  const GgufValue* Find(std::string_view key) const;  // nullptr if absent
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // Typed access. An integer of any width serves Int and Number; a float serves Number. An absent key or another type
  // is an error that names the file, the key, what was found and what was wanted. With a fallback, absence is not an
  // error.
  Result<int64_t> Int(std::string_view key) const;
  Result<int64_t> Int(std::string_view key, int64_t fallback) const;
  Result<double> Number(std::string_view key) const;
  Result<double> Number(std::string_view key, double fallback) const;
  Result<bool> Bool(std::string_view key, bool fallback) const;
  Result<std::string> String(std::string_view key) const;
  Result<std::string> String(std::string_view key, std::string_view fallback) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;            // array of integers or bools
  Result<std::vector<double>> Numbers(std::string_view key) const;          // array of numbers
  Result<std::span<const std::string>> Strings(std::string_view key) const; // borrowed; lives as long as the file

  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // of all parts, in order
  const NamedTensor* FindTensor(std::string_view name) const;           // nullptr if absent
  // The pages of this tensor are not needed soon.
  void Release(const TensorView& view) const;
  // What is odd about the file but does no harm: unused bytes at its end, data that had to be copied to be aligned.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  GgufFile() = default;
  friend class GgufReader;
  std::string path_;
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::unordered_map<std::string_view, size_t> key_index_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
  std::vector<std::shared_ptr<const MappedFile>> parts_;
  std::vector<Buffer> copies_;  // of tensors that the file does not align
  std::vector<std::string> warnings_;
};

// What a GGUF file is made of; written under a temporary name and renamed when complete. Tensor bytes are copied from
// the views, padded to the alignment. Version 3. Metadata that names a part of a split (split.*) is left out.
struct GgufContents {
  std::vector<std::pair<std::string, GgufValue>> metadata;  // general.alignment, where given, is obeyed
  std::vector<NamedTensor> tensors;
};
Result<void> WriteGguf(const std::string& path, const GgufContents& contents);

// Parts end before they hold more than either number; a tensor larger than max_bytes gets a part of its own.
struct GgufSplitLimits {
  uint64_t max_bytes = 0;    // of tensor data; 0: no limit
  uint64_t max_tensors = 0;  // 0: no limit
};
// Writes `prefix`-00001-of-0000N.gguf ... and returns their paths. Part 1 has all metadata, the others only split.*.
// Part 1 is renamed last, so that an unfinished set does not open.
Result<std::vector<std::string>> WriteGgufSplit(const std::string& prefix, const GgufContents& contents,
                                                const GgufSplitLimits& limits);

}  // namespace hone
