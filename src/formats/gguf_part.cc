// Reads one GGUF file front to back. Rule: no count or length from the file is believed before it is compared with the
// bytes that are left, and nothing is allocated before that.
#include "formats/gguf_part.h"

#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "formats/file_kind.h"

namespace hone {
namespace {

constexpr size_t kHeaderBytes = 24;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;          // key length, key, type, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;   // name length, name, dimensions, type, offset

struct TypeRow {
  std::string_view name;
  size_t bytes;  // of one value in the file; a string has 8 at least; 0: not an element type
};
constexpr TypeRow kTypes[] = {{"u8", 1},  {"i8", 1},   {"u16", 2},    {"i16", 2},   {"u32", 4}, {"i32", 4}, {"f32", 4},
                              {"bool", 1}, {"string", 8}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};
constexpr uint32_t kTypeCount = std::size(kTypes);

class PartReader {
 public:
  PartReader(const MappedFile& file, GgufPart* part)
      : path_(file.path()), bytes_(file.bytes()), part_(*part) {}

  Result<void> Read() {
    HONE_RETURN_IF_ERROR(ReadHeader());
    HONE_RETURN_IF_ERROR(ReadMetadata());
    HONE_RETURN_IF_ERROR(ReadTensors());
    return PlaceTensors();
  }

 private:
  Error Bad(const std::string& what) const { return InvalidInput(path_ + ": " + what); }
  Error Truncated(const std::string& where) const {
    return Bad("the file ends (" + std::to_string(bytes_.size()) + " bytes) inside " + where +
               "; it is cut off, download or copy it again");
  }
  size_t left() const { return bytes_.size() - at_; }

  template <typename T>
  Result<T> Get(const std::string& where) {
    if (left() < sizeof(T)) return Truncated(where);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  // A view into the mapping.
  Result<std::string_view> GetString(const std::string& where) {
    HONE_TRY(const uint64_t length, Get<uint64_t>(where));
    if (length > kGgufMaxLength) {
      return Bad(where + " says it is " + std::to_string(length) +
                 " bytes long, wanted at most 2^30; the file is damaged");
    }
    if (length > left()) return Truncated(where);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return text;
  }

  // Counts what metadata takes in memory.
  Result<void> Charge(uint64_t bytes, const std::string& where) {
    charged_ += bytes;
    if (charged_ <= kGgufMaxMetadataBytes) return {};
    return Error{ErrorCode::kLimit, path_ + ": metadata takes more than 1 GiB at " + where + "; no model needs that"};
  }

  Result<void> ReadHeader();
  Result<void> ReadMetadata();
  Result<void> ReadAlignment();
  Result<GgufValue> ReadScalar(GgufType type, const std::string& where);
  Result<GgufValue> ReadArray(const std::string& where);
  template <typename Stored, typename Held>
  Result<GgufValue> ReadNumbers(GgufType element, uint64_t count);
  Result<void> ReadTensors();
  Result<NamedTensor> ReadTensor(uint64_t index, std::string_view* name, uint64_t* offset);
  Result<Shape> ReadShape(const std::string& where);
  Result<void> CheckShape(const std::string& where, DType type, const Shape& shape) const;
  Result<void> PlaceTensors();

  const std::string& path_;
  const std::span<const std::byte> bytes_;
  GgufPart& part_;
  size_t at_ = 0;
  uint64_t tensor_count_ = 0, key_count_ = 0, charged_ = 0;
  uint64_t data_bytes_ = 0;  // of all tensors, padded
};

Result<void> PartReader::ReadHeader() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return Bad("not a GGUF file (wanted 'GGUF' at its start): " + DescribeContents(bytes_));
  }
  if (bytes_.size() < kHeaderBytes) return Truncated("the header");
  at_ = 4;
  HONE_TRY(part_.version, Get<uint32_t>("the header"));
  const std::string version = std::to_string(part_.version);
  if (part_.version != 0 && (part_.version & 0xffff) == 0) {
    return Unsupported(path_ +
                       ": a big-endian GGUF file, wanted little-endian; convert the model on a little-endian machine");
  }
  if (part_.version == 1) {
    return Unsupported(path_ + ": GGUF version 1, wanted 2 or 3; convert the original model again with a current tool");
  }
  if (part_.version == 0) return Bad("GGUF version 0, wanted 2 or 3; the file is damaged, download or copy it again");
  if (part_.version > 3) {
    return Unsupported(path_ + ": GGUF version " + version +
                       ", wanted 2 or 3; the file is newer than this hone, or damaged");
  }
  HONE_TRY(tensor_count_, Get<uint64_t>("the header"));
  HONE_TRY(key_count_, Get<uint64_t>("the header"));
  const auto believable = [&](uint64_t count, uint64_t each, uint64_t limit) {
    return count <= limit && count <= left() / each;
  };
  if (!believable(tensor_count_, kMinTensorBytes, kGgufMaxTensors)) {
    return Bad("the header says " + std::to_string(tensor_count_) + " tensors, more than a file of " +
               std::to_string(bytes_.size()) +
               " bytes can describe or hone reads (2^20); the file is cut off or damaged");
  }
  if (!believable(key_count_, kMinKeyBytes, kGgufMaxKeys)) {
    return Bad("the header says " + std::to_string(key_count_) + " metadata keys, more than a file of " +
               std::to_string(bytes_.size()) + " bytes can hold or hone reads (2^20); the file is cut off or damaged");
  }
  return {};
}

Result<void> PartReader::ReadMetadata() {
  std::unordered_set<std::string_view> seen;  // views into the mapping
  seen.reserve(key_count_);
  part_.metadata.reserve(key_count_);
  for (uint64_t i = 0; i < key_count_; ++i) {
    const std::string number = "metadata key " + std::to_string(i + 1) + " of " + std::to_string(key_count_);
    HONE_TRY(const std::string_view key, GetString(number));
    if (key.empty()) return Bad(number + " is empty, wanted a name; the file is damaged");
    const std::string where = "key '" + Printable(key) + "'";
    if (!seen.insert(key).second) return Bad(where + " is there twice, wanted once; write the file again");
    HONE_TRY(const uint32_t id, Get<uint32_t>(where));
    if (id >= kTypeCount) {
      return Bad(where + " has value type " + std::to_string(id) +
                 ", wanted 0 to 12; the file is damaged or newer than this hone");
    }
    const GgufType type = static_cast<GgufType>(id);
    HONE_RETURN_IF_ERROR(Charge(sizeof(part_.metadata[0]) + key.size(), where));
    HONE_TRY(GgufValue value, type == GgufType::kArray ? ReadArray(where) : ReadScalar(type, where));
    part_.metadata.emplace_back(std::string(key), std::move(value));
  }
  return ReadAlignment();
}

Result<void> PartReader::ReadAlignment() {
  for (const auto& [key, value] : part_.metadata) {
    if (key != "general.alignment") continue;
    if (value.type != GgufType::kU32) {
      return Bad("key 'general.alignment' is of type " + GgufTypeName(value) + ", wanted u32; write the file again");
    }
    part_.alignment = std::get<uint64_t>(value.value);
    if (!std::has_single_bit(part_.alignment)) {
      return Bad("key 'general.alignment' is " + std::to_string(part_.alignment) +
                 ", wanted a power of two; write the file again");
    }
  }
  return {};
}

Result<GgufValue> PartReader::ReadScalar(GgufType type, const std::string& where) {
  GgufValue value{.type = type, .element_type = GgufType::kU32, .value = uint64_t{0}};
  switch (type) {
#define HONE_GGUF_SCALAR(gguf_type, stored, held)              \
  case GgufType::gguf_type: {                                  \
    HONE_TRY(const stored number, Get<stored>(where));         \
    value.value = static_cast<held>(number);                   \
    return value;                                              \
  }
    HONE_GGUF_SCALAR(kU8, uint8_t, uint64_t)
    HONE_GGUF_SCALAR(kU16, uint16_t, uint64_t)
    HONE_GGUF_SCALAR(kU32, uint32_t, uint64_t)
    HONE_GGUF_SCALAR(kU64, uint64_t, uint64_t)
    HONE_GGUF_SCALAR(kI8, int8_t, int64_t)
    HONE_GGUF_SCALAR(kI16, int16_t, int64_t)
    HONE_GGUF_SCALAR(kI32, int32_t, int64_t)
    HONE_GGUF_SCALAR(kI64, int64_t, int64_t)
    HONE_GGUF_SCALAR(kF32, float, double)
    HONE_GGUF_SCALAR(kF64, double, double)
#undef HONE_GGUF_SCALAR
    case GgufType::kBool: {
      HONE_TRY(const uint8_t number, Get<uint8_t>(where));
      if (number > 1)
        return Bad(where + " is a bool of value " + std::to_string(number) + ", wanted 0 or 1; the file is damaged");
      value.value = number == 1;
      return value;
    }
    case GgufType::kString: {
      HONE_TRY(const std::string_view text, GetString(where));
      HONE_RETURN_IF_ERROR(Charge(text.size(), where));
      value.value = std::string(text);
      return value;
    }
    case GgufType::kArray: break;
  }
  return Bad(where + " holds an array where a plain value was wanted");
}

// REQUIRES: count * sizeof(Stored) bytes are left.
template <typename Stored, typename Held>
Result<GgufValue> PartReader::ReadNumbers(GgufType element, uint64_t count) {
  std::vector<Held> numbers(count);
  for (uint64_t i = 0; i < count; ++i, at_ += sizeof(Stored)) {
    Stored number;
    std::memcpy(&number, bytes_.data() + at_, sizeof(Stored));
    numbers[i] = static_cast<Held>(number);
  }
  return GgufValue{.type = GgufType::kArray, .element_type = element, .value = std::move(numbers)};
}

Result<GgufValue> PartReader::ReadArray(const std::string& where) {
  HONE_TRY(const uint32_t id, Get<uint32_t>(where));
  HONE_TRY(const uint64_t count, Get<uint64_t>(where));
  if (id == static_cast<uint32_t>(GgufType::kArray)) {
    return Unsupported(path_ + ": " + where + " is an array of arrays, wanted plain elements; write the file again");
  }
  if (id >= kTypeCount) {
    return Bad(where + " is an array of elements of type " + std::to_string(id) +
               ", wanted 0 to 12; the file is damaged");
  }
  if (count > kGgufMaxLength) {
    return Bad(where + " is an array of " + std::to_string(count) +
               " elements, wanted at most 2^30; the file is damaged");
  }
  if (count > left() / kTypes[id].bytes)
    return Truncated(where + ", an array of " + std::to_string(count) + " elements");
  const GgufType element = static_cast<GgufType>(id);
  const uint64_t each = element == GgufType::kString ? sizeof(std::string) : element == GgufType::kBool ? 1 : 8;
  HONE_RETURN_IF_ERROR(Charge(count * each, where));
  switch (element) {
    case GgufType::kU8: return ReadNumbers<uint8_t, uint64_t>(element, count);
    case GgufType::kU16: return ReadNumbers<uint16_t, uint64_t>(element, count);
    case GgufType::kU32: return ReadNumbers<uint32_t, uint64_t>(element, count);
    case GgufType::kU64: return ReadNumbers<uint64_t, uint64_t>(element, count);
    case GgufType::kI8: return ReadNumbers<int8_t, int64_t>(element, count);
    case GgufType::kI16: return ReadNumbers<int16_t, int64_t>(element, count);
    case GgufType::kI32: return ReadNumbers<int32_t, int64_t>(element, count);
    case GgufType::kI64: return ReadNumbers<int64_t, int64_t>(element, count);
    case GgufType::kF32: return ReadNumbers<float, double>(element, count);
    case GgufType::kF64: return ReadNumbers<double, double>(element, count);
    case GgufType::kBool: {
      std::vector<bool> bits(count);
      for (uint64_t i = 0; i < count; ++i) {
        const uint8_t number = static_cast<uint8_t>(bytes_[at_++]);
        if (number > 1) {
          return Bad(where + " element " + std::to_string(i) + " is a bool of value " + std::to_string(number) +
                     ", wanted 0 or 1; the file is damaged");
        }
        bits[i] = number == 1;
      }
      return GgufValue{.type = GgufType::kArray, .element_type = element, .value = std::move(bits)};
    }
    default: break;
  }
  std::vector<std::string> strings(count);
  const std::string inside = where + " (a string of its array)";
  for (uint64_t i = 0; i < count; ++i) {
    HONE_TRY(const std::string_view text, GetString(inside));
    HONE_RETURN_IF_ERROR(Charge(text.size(), where));
    strings[i] = text;
  }
  return GgufValue{.type = GgufType::kArray, .element_type = element, .value = std::move(strings)};
}

Result<void> PartReader::ReadTensors() {
  std::unordered_set<std::string_view> seen;  // views into the mapping
  seen.reserve(tensor_count_);
  part_.tensors.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    std::string_view name;
    uint64_t offset = 0;
    HONE_TRY(NamedTensor tensor, ReadTensor(i, &name, &offset));
    const std::string where = "tensor '" + Printable(name) + "'";
    if (!seen.insert(name).second) return Bad(where + " is there twice, wanted once; write the file again");
    if (offset != data_bytes_) {
      return Bad(where + " has data offset " + std::to_string(offset) + ", wanted " + std::to_string(data_bytes_) +
                 " (tensors follow one another, each padded to " + std::to_string(part_.alignment) +
                 " bytes); the file is damaged or its writer is wrong");
    }
    uint64_t end;
    if (__builtin_add_overflow(data_bytes_, tensor.view.bytes(), &end) ||
        __builtin_add_overflow(end, part_.alignment - 1, &data_bytes_)) {
      return Bad(where + " makes the data larger than 2^64 bytes; the file is damaged");
    }
    data_bytes_ = data_bytes_ / part_.alignment * part_.alignment;
    part_.tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<NamedTensor> PartReader::ReadTensor(uint64_t index, std::string_view* name, uint64_t* offset) {
  const std::string number = "the name of tensor " + std::to_string(index + 1) + " of " + std::to_string(tensor_count_);
  HONE_TRY(*name, GetString(number));
  if (name->empty()) return Bad(number + " is empty, wanted a name; the file is damaged");
  const std::string where = "tensor '" + Printable(*name) + "'";
  if (name->size() > kGgufMaxTensorName) {
    return Bad(where + " has a name of " + std::to_string(name->size()) + " bytes, wanted at most 63");
  }
  NamedTensor tensor;
  tensor.name = *name;
  HONE_TRY(tensor.view.shape, ReadShape(where));
  HONE_TRY(const uint32_t id, Get<uint32_t>(where));
  const std::optional<DType> type = DTypeFromGgml(id);
  if (!type) {
    const bool removed = id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
    return Unsupported(path_ + ": " + where + " has type id " + std::to_string(id) +
                       (removed
                            ? ", a format that GGUF has removed; quantise the original model again to a current type"
                            : ", which hone does not know; the file is damaged or newer than this hone"));
  }
  tensor.view.type = *type;
  HONE_RETURN_IF_ERROR(CheckShape(where, *type, tensor.view.shape));
  HONE_TRY(*offset, Get<uint64_t>(where));
  return tensor;
}

Result<Shape> PartReader::ReadShape(const std::string& where) {
  HONE_TRY(const uint32_t rank, Get<uint32_t>(where));
  if (rank > kGgufMaxRank) {
    return Bad(where + " has " + std::to_string(rank) + " dimensions, wanted at most 4; the file is damaged");
  }
  int64_t sizes[kGgufMaxRank] = {};
  for (uint32_t i = 0; i < rank; ++i) {
    HONE_TRY(sizes[i], Get<int64_t>(where));
    if (sizes[i] < 0) {
      return Bad(where + " has dimension " + std::to_string(i) + " of size " + std::to_string(sizes[i]) +
                 ", wanted 0 or more; the file is damaged");
    }
  }
  Shape shape;
  for (uint32_t i = rank; i > 0; --i) shape.Append(sizes[i - 1]);  // the file has the innermost first
  return shape;
}

Result<void> PartReader::CheckShape(const std::string& where, DType type, const Shape& shape) const {
  // Sizes of 0 count as 1 here, so that no partial product that a reader may form overflows either.
  int64_t product = Info(type).block_bytes;
  for (int i = 0; i < shape.rank(); ++i) {
    if (__builtin_mul_overflow(product, std::max<int64_t>(shape[i], 1), &product)) {
      return Bad(where + " of shape " + shape.ToString() + " has more than 2^63 bytes; the file is damaged");
    }
  }
  const int64_t block = Info(type).block_elements;
  if (shape.back() % block != 0) {
    return Bad(where + " has rows of " + std::to_string(shape.back()) + " elements, wanted a multiple of " +
               std::to_string(block) + ", the block of " + std::string(Info(type).name) + "; its writer is wrong");
  }
  return {};
}

Result<void> PartReader::PlaceTensors() {
  const uint64_t start = (at_ + part_.alignment - 1) / part_.alignment * part_.alignment;
  uint64_t position = start;
  for (NamedTensor& tensor : part_.tensors) {
    const uint64_t bytes = tensor.view.bytes();
    if (bytes > 0 && (position > bytes_.size() || bytes > bytes_.size() - position)) {
      return Bad("the file has " + std::to_string(bytes_.size()) + " bytes, wanted " +
                 std::to_string(start + data_bytes_) + "; it ends inside or before tensor '" + Printable(tensor.name) +
                 "', download or copy it again");
    }
    tensor.view.data = bytes_.data() + std::min<uint64_t>(position, bytes_.size());
    position = (position + bytes + part_.alignment - 1) / part_.alignment * part_.alignment;
  }
  part_.unused_bytes = bytes_.size() > position ? bytes_.size() - position : 0;
  return {};
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  const uint32_t id = static_cast<uint32_t>(type);
  return id < kTypeCount ? kTypes[id].name : std::string_view("unknown");
}

std::string GgufTypeName(const GgufValue& value) {
  if (value.type != GgufType::kArray) return std::string(GgufTypeName(value.type));
  return "array of " + std::string(GgufTypeName(value.element_type));
}

Result<GgufPart> ReadGgufPart(std::shared_ptr<const MappedFile> file) {
  GgufPart part;
  part.file = std::move(file);
  HONE_RETURN_IF_ERROR(PartReader(*part.file, &part).Read());
  return part;
}

}  // namespace hone
