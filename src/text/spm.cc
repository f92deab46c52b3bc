// SentencePiece BPE as llama.cpp runs it: any two neighbours whose texts join to a token may merge, highest score
// first, leftmost among equals. A character that is no token becomes byte tokens. Malformed UTF-8 keeps its bytes.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "text/merge_queue.h"
#include "text/model.h"
#include "text/space_mark.h"

namespace hone {
namespace {

constexpr size_t kMaxPartBytes = size_t{1} << 30;

class SpmModel final : public TokenModel {
 public:
  SpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores, int32_t unk)
      : vocabulary_(std::move(vocabulary)), bytes_(ByteTokenIds(*vocabulary_)), unk_(unk) {
    scores.resize(vocabulary_->size(), 0.0F);
    for (float& score : scores) score = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
    std::vector<float> falling = scores;
    std::sort(falling.begin(), falling.end(), std::greater<>());
    falling.erase(std::unique(falling.begin(), falling.end()), falling.end());
    ranks_ = static_cast<uint32_t>(falling.size());
    for (const float score : scores) {
      const auto at = std::lower_bound(falling.begin(), falling.end(), score, std::greater<>());
      order_.push_back(static_cast<uint32_t>(at - falling.begin()));
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (bytes_[byte] >= 0) continue;
      const char raw = static_cast<char>(byte);
      bytes_[byte] = vocabulary_->Find({&raw, 1});
    }
    words_apart_ = std::none_of(vocabulary_->texts.begin(), vocabulary_->texts.end(),
                                [](const std::string& text) { return HasInnerMark(text); });
  }

  std::string_view kind() const override { return "spm"; }
  int32_t unk() const override { return unk_; }

  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const override {
    if (words_apart_) {
      ForEachMarkedWord(piece, [&](std::string_view word) { EncodeWord(word, scratch, ids); });
    } else {
      EncodeWord(piece, scratch, ids);
    }
  }

 private:
  void EncodeWord(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
    for (; piece.size() > kMaxPartBytes; piece.remove_prefix(kMaxPartBytes)) {
      EncodePart(piece.substr(0, kMaxPartBytes), scratch, ids);
    }
    EncodePart(piece, scratch, ids);
  }

  void EncodePart(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
    auto& symbols = scratch->symbols;
    symbols.clear();
    for (size_t pos = 0; pos < piece.size();) {
      static constexpr uint8_t kBytes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};  // by the lead byte alone
      const size_t bytes = std::min<size_t>(kBytes[static_cast<unsigned char>(piece[pos]) >> 4], piece.size() - pos);
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({-1, static_cast<uint32_t>(pos), static_cast<uint32_t>(bytes), index - 1, index + 1});
      pos += bytes;
    }
    if (symbols.empty()) return;
    symbols.back().next = -1;
    if (symbols.size() < kRankQueueSymbols) {
      RunMerges(HeapQueue(&scratch->heap), piece, &symbols);
    } else {
      RunMerges(RankQueue(ranks_), piece, &symbols);
    }
    for (int32_t i = 0; i >= 0; i = symbols[i].next) Emit(piece.substr(symbols[i].begin, symbols[i].bytes), ids);
  }

  template <typename Queue>
  void RunMerges(Queue queue, std::string_view piece, std::vector<Scratch::Symbol>* list) const {
    Scratch::Symbol* symbols = list->data();
    // The rank of merging with the right neighbour; ranks_ if the two make no token.
    const auto rank_of = [&](const Scratch::Symbol& left) {
      const int32_t id = vocabulary_->Find(piece.substr(left.begin, left.bytes + symbols[left.next].bytes));
      return id < 0 ? ranks_ : order_[static_cast<size_t>(id)];
    };
    const auto push = [&](int32_t left) {
      if (left < 0 || symbols[left].next < 0) return;
      const uint32_t rank = rank_of(symbols[left]);
      symbols[left].id = static_cast<int32_t>(rank);  // of the pair that starts here now; tells stale candidates
      if (rank < ranks_) queue.Push(rank, static_cast<uint32_t>(left));
    };
    for (size_t i = 0; i + 1 < list->size(); ++i) push(static_cast<int32_t>(i));
    for (uint32_t rank = 0, place = 0; queue.Pop(&rank, &place);) {
      Scratch::Symbol& left = symbols[place];
      if (left.bytes == 0 || left.next < 0) continue;
      if (left.id != static_cast<int32_t>(rank)) continue;  // stale
      Scratch::Symbol& right = symbols[left.next];
      left.bytes += right.bytes;
      right.bytes = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[left.next].prev = static_cast<int32_t>(place);
      push(left.prev);
      push(static_cast<int32_t>(place));
    }
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
  std::vector<uint32_t> order_;  // by id: the rank of its score, the highest first; equal scores share one
  uint32_t ranks_ = 0;
  std::array<int32_t, 256> bytes_;
  int32_t unk_;
  bool words_apart_ = false;  // no token holds a ▁ after another character
};

}  // namespace

std::unique_ptr<TokenModel> MakeSpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
                                         int32_t unk) {
  return std::make_unique<SpmModel>(std::move(vocabulary), std::move(scores), unk);
}

}  // namespace hone
