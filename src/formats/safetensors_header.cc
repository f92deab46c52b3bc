// Two small state machines over the events of nlohmann's SAX parser. The deepest value they accept has three levels, so
// nesting is bounded by construction: values of unknown fields are skipped to a depth of 16.
#include "formats/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "formats/file_kind.h"

namespace hone {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxSkippedDepth = 16;

// Events that a machine does not expect are errors. A machine fails by returning Fail(...) from an event.
class Machine : public nlohmann::json_sax<Json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return Skipping() || Null(); }
  bool boolean(bool) override { return Skipping() || Unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return Skipping() || Unexpected("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override { return Skipping() || Number(value); }
  bool number_float(number_float_t, const string_t& text) override {
    return Skipping() || Unexpected("the number " + Printable(text));
  }
  bool string(string_t& text) override { return Skipping() || Text(text); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool start_object(std::size_t) override { return skip_next_ || skip_depth_ > 0 ? Deeper() : StartObject(); }
  bool start_array(std::size_t) override { return skip_next_ || skip_depth_ > 0 ? Deeper() : StartArray(); }
  bool end_object() override { return skip_depth_ > 0 ? Shallower() : EndObject(); }
  bool end_array() override { return skip_depth_ > 0 ? Shallower() : EndArray(); }
  bool key(string_t& name) override { return skip_depth_ > 0 || Key(name); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail("not valid JSON at byte " + std::to_string(position) + ": " + error.what());
  }

 protected:
  bool Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }
  void SkipNext() { skip_next_ = true; }

  virtual std::string Where() const = 0;  // what is being read
  virtual bool Null() { return Unexpected("null"); }
  virtual bool Number(uint64_t value) { return Unexpected("the number " + std::to_string(value)); }
  virtual bool Text(std::string&) { return Unexpected("a string"); }
  virtual bool StartArray() { return Unexpected("an array"); }
  virtual bool EndArray() { return true; }
  virtual bool StartObject() = 0;
  virtual bool EndObject() = 0;
  virtual bool Key(std::string& name) = 0;
  bool Unexpected(const std::string& found) { return Fail(Where() + " holds " + found + ", wanted " + Wanted()); }
  virtual std::string Wanted() const = 0;

 private:
  bool Skipping() {
    const bool skipping = skip_next_ || skip_depth_ > 0;
    skip_next_ = false;
    return skipping;
  }
  bool Deeper() {
    skip_next_ = false;
    return ++skip_depth_ <= kMaxSkippedDepth || Fail(Where() + " is nested too deep");
  }
  bool Shallower() {
    --skip_depth_;
    return true;
  }
  std::string problem_;
  bool skip_next_ = false;
  size_t skip_depth_ = 0;
};

bool RunMachine(std::string_view text, Machine* machine, std::string* problem) {
  bool ok = false;
  try {
    ok = Json::sax_parse(text, machine);
    *problem = machine->problem();
  } catch (const std::exception& error) {
    *problem = std::string("not valid JSON: ") + error.what();
  }
  if (!ok && problem->empty()) *problem = "not valid JSON";
  return ok && problem->empty();
}

class HeaderMachine : public Machine {
 public:
  explicit HeaderMachine(SafetensorsHeader* header) : header_(*header) {}

 private:
  enum class State { kStart, kRoot, kMetadata, kTensor, kDType, kShape, kOffsets };

  std::string Where() const override {
    switch (state_) {
      case State::kStart: case State::kRoot: return name_.empty() ? "the header" : "entry '" + Printable(name_) + "'";
      case State::kMetadata: return "__metadata__ key '" + Printable(field_) + "'";
      case State::kTensor: return "tensor '" + Printable(name_) + "'";
      case State::kDType: return "dtype of tensor '" + Printable(name_) + "'";
      case State::kShape: return "shape of tensor '" + Printable(name_) + "'";
      case State::kOffsets: return "data_offsets of tensor '" + Printable(name_) + "'";
    }
    return "the header";
  }
  std::string Wanted() const override {
    switch (state_) {
      case State::kMetadata: case State::kDType: return "a string";
      case State::kShape: return "an array of whole numbers below 2^63";
      case State::kOffsets: return "an array of two whole numbers";
      default: return "an object {...}";
    }
  }

  bool StartObject() override {
    if (state_ == State::kStart) {
      state_ = State::kRoot;
      return true;
    }
    if (state_ != State::kRoot) return Unexpected("an object");
    if (name_ == "__metadata__") {
      state_ = State::kMetadata;
      return true;
    }
    state_ = State::kTensor;
    entry_ = {};
    entry_.name = name_;
    have_dtype_ = have_shape_ = have_offsets_ = false;
    return true;
  }

  bool EndObject() override {
    if (state_ == State::kTensor) {
      if (!have_dtype_ || !have_shape_ || !have_offsets_) {
        return Fail(Where() + " has no " + (!have_dtype_ ? "dtype" : !have_shape_ ? "shape" : "data_offsets") +
                    ", wanted dtype, shape and data_offsets");
      }
      header_.entries.push_back(std::move(entry_));
    }
    state_ = State::kRoot;
    return true;
  }

  bool Key(std::string& name) override {
    if (state_ == State::kRoot) {
      name_ = name;
      return seen_.insert(name).second || Fail("entry '" + Printable(name) + "' is there twice, wanted once");
    }
    if (state_ == State::kMetadata) {
      field_ = name;
      return header_.metadata.emplace(name, "").second ||
             Fail("__metadata__ key '" + Printable(name) + "' is there twice, wanted once");
    }
    const auto once = [&](bool* have, State next) {
      if (*have) return Fail(Where() + " has its " + name + " twice, wanted once");
      *have = true;
      state_ = next;
      return true;
    };
    if (name == "dtype") return once(&have_dtype_, State::kDType);
    if (name == "shape") return once(&have_shape_, State::kShape);
    if (name == "data_offsets") return once(&have_offsets_, State::kOffsets);
    SkipNext();
    return true;
  }

  bool Null() override {
    if (state_ == State::kRoot && name_ == "__metadata__") return true;
    return Unexpected("null");
  }

  bool Text(std::string& text) override {
    if (state_ == State::kMetadata) {
      header_.metadata[field_] = std::move(text);
      return true;
    }
    if (state_ != State::kDType) return Unexpected("a string");
    const std::optional<DType> type = DTypeFromName(text);
    if (!type || !IsSafetensorsType(*type)) {
      return Fail(Where() + " is '" + Printable(text) +
                  "', wanted one that safetensors has (F32, F16, BF16, I64, U8, F8_E4M3 ...)");
    }
    entry_.type = *type;
    state_ = State::kTensor;
    return true;
  }

  bool StartArray() override {
    if ((state_ != State::kShape && state_ != State::kOffsets) || in_array_) return Unexpected("an array");
    in_array_ = true;
    offsets_ = 0;
    return true;
  }
  bool EndArray() override {
    if (state_ == State::kOffsets && offsets_ != 2) {
      return Fail(Where() + " has " + std::to_string(offsets_) + " numbers, wanted two");
    }
    in_array_ = false;
    state_ = State::kTensor;
    return true;
  }
  bool Number(uint64_t value) override {
    if (!in_array_) return Unexpected("the number " + std::to_string(value));
    if (state_ == State::kOffsets) {
      if (offsets_ == 2) return Fail(Where() + " has more than two numbers");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    if (value >= uint64_t{1} << 63) return Unexpected("the number " + std::to_string(value));
    if (entry_.shape.rank() == Shape::kMaxRank)
      return Fail(Where() + " has more than 8 dimensions, which hone does not read");
    entry_.shape.Append(static_cast<int64_t>(value));
    return true;
  }

  SafetensorsHeader& header_;
  State state_ = State::kStart;
  std::string name_, field_;
  std::unordered_set<std::string> seen_;
  SafetensorsEntry entry_;
  bool have_dtype_ = false, have_shape_ = false, have_offsets_ = false, in_array_ = false;
  int offsets_ = 0;
};

class IndexMachine : public Machine {
 public:
  explicit IndexMachine(std::map<std::string, std::string>* map) : map_(*map) {}
  bool found() const { return found_; }

 private:
  enum class State { kStart, kRoot, kMap };
  std::string Where() const override {
    return state_ == State::kMap ? "weight_map key '" + Printable(name_) + "'"
           : name_.empty()       ? "the index"
                                 : "'" + Printable(name_) + "'";
  }
  std::string Wanted() const override { return state_ == State::kMap ? "the name of a file" : "an object {...}"; }
  bool StartObject() override {
    if (state_ == State::kMap) return Unexpected("an object");
    state_ = state_ == State::kStart ? State::kRoot : State::kMap;
    return true;
  }
  bool EndObject() override {
    state_ = State::kRoot;
    return true;
  }
  bool Key(std::string& name) override {
    name_ = name;
    if (state_ == State::kMap) {
      return map_.emplace(name, "").second || Fail(Where() + " is there twice, wanted once");
    }
    if (name != "weight_map") {
      SkipNext();
      return true;
    }
    if (found_) return Fail("'weight_map' is there twice, wanted once");
    return found_ = true;
  }
  bool Text(std::string& text) override {
    if (state_ != State::kMap) return Unexpected("a string");
    const bool plain =
        text.ends_with(".safetensors") && text[0] != '.' && text.find("..") == std::string::npos &&
        std::none_of(text.begin(), text.end(), [](char c) { return c == '/' || c == '\\' || (c >= 0 && c < 0x20); });
    if (!plain) {
      return Fail(Where() + " names the file '" + Printable(text) +
                  "', wanted a plain name ending in .safetensors, with no folder in it");
    }
    map_[name_] = std::move(text);
    return true;
  }

  std::map<std::string, std::string>& map_;
  State state_ = State::kStart;
  std::string name_;
  bool found_ = false;
};

std::string Quoted(const SafetensorsEntry& entry) { return "tensor '" + Printable(entry.name) + "'"; }

// Type, shape and offsets of one entry agree. Empty if so, else what is wrong.
std::string CheckEntry(const SafetensorsEntry& entry) {
  const DTypeInfo& info = Info(entry.type);
  // Sizes of 0 count as 1 here, so that no partial product that a reader may form overflows either.
  int64_t product = info.block_bytes;
  for (int i = 0; i < entry.shape.rank(); ++i) {
    if (__builtin_mul_overflow(product, std::max<int64_t>(entry.shape[i], 1), &product)) {
      return " of shape " + entry.shape.ToString() + " has more than 2^63 bytes";
    }
  }
  if (entry.shape.back() % info.block_elements != 0) {
    return " of type " + std::string(info.name) + " and shape " + entry.shape.ToString() +
           " has rows that do not fill whole bytes, wanted a last dimension that is a multiple of " +
           std::to_string(info.block_elements);
  }
  if (entry.begin > entry.end) {
    return " has data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
           "], wanted begin <= end";
  }
  const uint64_t wanted = BytesFor(entry.type, entry.shape.elements());
  if (entry.end - entry.begin == wanted) return "";
  return " of type " + std::string(info.name) + " and shape " + entry.shape.ToString() + " has " +
         std::to_string(entry.end - entry.begin) + " bytes, wanted " + std::to_string(wanted);
}

}  // namespace

bool IsSafetensorsType(DType type) {
  const int id = Info(type).ggml_id;
  return id == -1 || (id >= 0 && !IsBlock(type));
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, uint64_t buffer_bytes,
                                                 const std::string& path) {
  SafetensorsHeader header;
  HeaderMachine machine(&header);
  std::string problem;
  if (!RunMachine(text, &machine, &problem)) {
    return InvalidInput(path + ": safetensors header: " + problem + "; the file is damaged or its writer is wrong");
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const std::string wrong = CheckEntry(entry);
    if (!wrong.empty())
      return InvalidInput(path + ": " + Quoted(entry) + wrong + "; the file is damaged or its writer is wrong");
    if (entry.begin != at) {
      return InvalidInput(path + ": " + Quoted(entry) + " begins at byte " + std::to_string(entry.begin) +
                          " of the data, wanted " + std::to_string(at) +
                          (entry.begin > at ? " (a hole)" : " (tensors overlap)") +
                          "; the file is damaged or its writer is wrong");
    }
    at = entry.end;
  }
  if (at > buffer_bytes) {
    return InvalidInput(path + ": the tensors need " + std::to_string(at) + " bytes, the file has " +
                        std::to_string(buffer_bytes) + " after its header; it is cut off, download or copy it again");
  }
  if (at < buffer_bytes) {
    return InvalidInput(path + ": the file has " + std::to_string(buffer_bytes - at) +
                        " bytes after the last tensor, wanted none; the file is damaged or its writer is wrong");
  }
  return header;
}

Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text, const std::string& path) {
  if (text.size() > kSafetensorsMaxHeaderBytes) {
    return Error{ErrorCode::kLimit,
                 path + ": the index has " + std::to_string(text.size()) + " bytes, wanted at most 100000000"};
  }
  std::map<std::string, std::string> map;
  IndexMachine machine(&map);
  std::string problem;
  if (!RunMachine(text, &machine, &problem)) return InvalidInput(path + ": " + problem + "; download the index again");
  if (!machine.found())
    return InvalidInput(path +
                        ": no key 'weight_map', wanted {\"weight_map\": {tensor: file}}; download the index again");
  if (map.empty())
    return InvalidInput(path + ": 'weight_map' is empty, wanted the file of each tensor; download the index again");
  return map;
}

}  // namespace hone
