// A piece is three lists (scales, clips, losses), each a count and its entries; a text or a row of numbers is its length and its
// bytes, numbers in this machine's order: nobody else reads it.
#include "compress/scale/awq_pieces.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace hone {
namespace {

template <typename T>
void PutRow(const T* data, size_t count, std::string* to) {
  const uint64_t length = count;
  to->append(reinterpret_cast<const char*>(&length), sizeof(length));
  to->append(reinterpret_cast<const char*>(data), count * sizeof(T));
}
template <typename Row>
void Put(const Row& row, std::string* to) {
  PutRow(row.data(), row.size(), to);
}

// Reads; `whole` turns false where the piece ends too early.
struct PieceReader {
  std::string_view left;
  bool whole = true;

  uint64_t Count() {
    uint64_t count = 0;
    if (left.size() < sizeof(count)) whole = false;
    if (!whole) return 0;
    std::memcpy(&count, left.data(), sizeof(count));
    left.remove_prefix(sizeof(count));
    return count;
  }
  template <typename Row>
  Row Take() {
    const uint64_t count = Count();
    constexpr size_t kSize = sizeof(typename Row::value_type);
    if (count > left.size() / kSize) whole = false;
    if (!whole) return {};
    Row row(static_cast<size_t>(count), typename Row::value_type());
    std::memcpy(row.data(), left.data(), row.size() * kSize);
    left.remove_prefix(row.size() * kSize);
    return row;
  }
};

template <typename Map, typename Fn>
void PutEntries(const Map& map, std::string_view prefix, std::string* to, Fn put) {
  uint64_t count = 0;
  for (const auto& [name, entry] : map) count += name.starts_with(prefix);
  to->append(reinterpret_cast<const char*>(&count), sizeof(count));
  for (const auto& [name, entry] : map) {
    if (!name.starts_with(prefix)) continue;
    Put(name, to);
    put(entry);
  }
}

}  // namespace

std::string EncodeAwqChoice(const AwqChoice& choice, std::string_view prefix) {
  std::string piece;
  PutEntries(choice.scales, prefix, &piece, [&](const ColumnScale& scale) {
    Put(scale.scale, &piece);
    Put(scale.taker, &piece);
    PutRow(&scale.gain, 1, &piece);
  });
  PutEntries(choice.clips, prefix, &piece, [&](const std::vector<float>& clips) { Put(clips, &piece); });
  PutEntries(choice.losses, prefix, &piece, [&](const std::vector<double>& losses) { Put(losses, &piece); });
  return piece;
}

Result<void> DecodeAwqChoice(std::string_view piece, AwqChoice* choice) {
  PieceReader reader{piece};
  for (uint64_t i = reader.Count(); i > 0 && reader.whole; --i) {
    ColumnScale& scale = choice->scales[reader.Take<std::string>()];
    scale.scale = reader.Take<std::vector<float>>();
    scale.taker = reader.Take<std::string>();
    const auto gain = reader.Take<std::vector<double>>();
    scale.gain = gain.empty() ? 0 : gain[0];
  }
  for (uint64_t i = reader.Count(); i > 0 && reader.whole; --i) {
    std::vector<float>& clips = choice->clips[reader.Take<std::string>()];
    clips = reader.Take<std::vector<float>>();
  }
  for (uint64_t i = reader.Count(); i > 0 && reader.whole; --i) {
    std::vector<double>& losses = choice->losses[reader.Take<std::string>()];
    losses = reader.Take<std::vector<double>>();
  }
  if (!reader.whole || !reader.left.empty()) return InvalidInput("not what AWQ's search keeps; start again without --resume");
  return {};
}

}  // namespace hone
