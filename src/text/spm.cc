// SentencePiece BPE as llama.cpp runs it: any two neighbours whose texts join to a token may merge, highest score first,
// leftmost among equals. A character that is no token becomes byte tokens. Malformed UTF-8 keeps its bytes.
#include <algorithm>
#include <bit>
#include <cmath>

#include "text/model.h"

namespace hone {
namespace {

constexpr size_t kMaxPieceBytes = size_t{1} << 30;

class SpmModel final : public TokenModel {
 public:
  SpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores, int32_t unk)
      : vocabulary_(std::move(vocabulary)), bytes_(ByteTokenIds(*vocabulary_)), unk_(unk) {
    order_.reserve(scores.size());
    for (const float score : scores) order_.push_back(Order(score));
    order_.resize(vocabulary_->size(), Order(0));
    for (int byte = 0; byte < 256; ++byte) {
      if (bytes_[byte] >= 0) continue;
      const char raw = static_cast<char>(byte);
      bytes_[byte] = vocabulary_->Find({&raw, 1});
    }
  }

  std::string_view kind() const override { return "spm"; }
  int32_t unk() const override { return unk_; }

  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const override {
    for (; piece.size() > kMaxPieceBytes; piece.remove_prefix(kMaxPieceBytes)) {
      EncodePart(piece.substr(0, kMaxPieceBytes), scratch, ids);
    }
    EncodePart(piece, scratch, ids);
  }

 private:
  // A number that grows as the score falls.
  static int64_t Order(float score) {
    if (std::isnan(score)) return INT64_MAX;
    const auto bits = std::bit_cast<int32_t>(score == 0 ? 0.0F : score);
    return -static_cast<int64_t>(bits < 0 ? INT32_MIN - static_cast<int64_t>(bits) : bits);
  }

  void EncodePart(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
    auto& symbols = scratch->symbols;
    auto& heap = scratch->heap;
    symbols.clear();
    heap.clear();
    for (size_t pos = 0; pos < piece.size();) {
      static constexpr uint8_t kBytes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};  // by the lead byte alone
      const size_t bytes = std::min<size_t>(kBytes[static_cast<unsigned char>(piece[pos]) >> 4], piece.size() - pos);
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({-1, static_cast<uint32_t>(pos), static_cast<uint32_t>(bytes), index - 1, index + 1});
      pos += bytes;
    }
    if (symbols.empty()) return;
    symbols.back().next = -1;

    const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
      return a.order != b.order ? a.order > b.order : a.left > b.left;
    };
    const auto candidate = [&](int32_t left) -> bool {
      if (left < 0 || symbols[left].next < 0) return false;
      const uint32_t bytes = symbols[left].bytes + symbols[symbols[left].next].bytes;
      const int32_t id = vocabulary_->Find(piece.substr(symbols[left].begin, bytes));
      if (id < 0) return false;
      heap.push_back({order_[static_cast<size_t>(id)], static_cast<uint32_t>(left), bytes});
      return true;
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) candidate(static_cast<int32_t>(i));
    std::make_heap(heap.begin(), heap.end(), later);
    const auto push = [&](int32_t left) {
      if (candidate(left)) std::push_heap(heap.begin(), heap.end(), later);
    };
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const Scratch::Candidate top = heap.back();
      heap.pop_back();
      Scratch::Symbol& left = symbols[top.left];
      if (left.bytes == 0 || left.next < 0) continue;
      Scratch::Symbol& right = symbols[left.next];
      if (left.bytes + right.bytes != top.bytes) continue;  // stale
      left.bytes = top.bytes;
      right.bytes = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[left.next].prev = static_cast<int32_t>(top.left);
      push(left.prev);
      push(static_cast<int32_t>(top.left));
    }
    for (int32_t i = 0; i >= 0; i = symbols[i].next) Emit(piece.substr(symbols[i].begin, symbols[i].bytes), ids);
  }

  void Emit(std::string_view text, std::vector<int32_t>* ids) const {
    const int32_t id = vocabulary_->Find(text);
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
    for (const char c : text) {
      const int32_t byte = bytes_[static_cast<unsigned char>(c)];
      if (byte >= 0) {
        ids->push_back(byte);
      } else if (unk_ >= 0) {
        ids->push_back(unk_);
      }
    }
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<int64_t> order_;  // by id
  std::array<int32_t, 256> bytes_;
  int32_t unk_;
};

}  // namespace

std::unique_ptr<TokenModel> MakeSpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores, int32_t unk) {
  return std::make_unique<SpmModel>(std::move(vocabulary), std::move(scores), unk);
}

}  // namespace hone
