// BPE merges by rank, leftmost first among equals. Short pieces scan an array of ranks; long ones use a queue over a
// linked list (merge_queue.h), so that a piece of megabytes (no pre-tokenizer splits "aaaa…") costs little more a
// symbol.
#include <algorithm>
#include <bit>
#include <limits>

#include "text/byte_level.h"
#include "text/merge_queue.h"
#include "text/model.h"
#include "text/space_mark.h"
#include "text/utf8.h"

namespace hone {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr size_t kScanLimit = 48;                   // symbols of a piece that is merged by scanning
constexpr size_t kMaxPieceBytes = size_t{1} << 30;  // longer pieces are cut; positions are 32 bits

// (left id, right id) to (rank, id of the merge): a flat hash table.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };
  explicit MergeTable(size_t count)
      : cells_(std::bit_ceil(std::max<size_t>(16, count * 2))), mask_(cells_.size() - 1) {}

  // The first rank of a pair holds.
  void Insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = Key(left, right);
    size_t i = Hash(key) & mask_;
    while (cells_[i].key != kEmpty) {
      if (cells_[i].key == key) return;
      i = (i + 1) & mask_;
    }
    cells_[i] = {key, merge};
  }
  Merge Find(int32_t left, int32_t right) const {
    if ((left | right) < 0) return {};
    const uint64_t key = Key(left, right);
    for (size_t i = Hash(key) & mask_;; i = (i + 1) & mask_) {
      if (cells_[i].key == key) return cells_[i].merge;
      if (cells_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Cell {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static size_t Hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    return static_cast<size_t>(key ^ (key >> 29));
  }
  std::vector<Cell> cells_;
  size_t mask_;
};

class BpeModel final : public TokenModel {
 public:
  BpeModel(std::shared_ptr<const Vocabulary> vocabulary, MergeTable merges, uint32_t ranks, bool words_apart,
           BpeOptions options)
      : vocabulary_(std::move(vocabulary)),
        merges_(std::move(merges)),
        ranks_(ranks),
        words_apart_(words_apart),
        options_(std::move(options)) {
    if (options_.byte_level) {
      for (int byte = 0; byte < 256; ++byte) {
        bytes_[byte] = vocabulary_->Find(ByteCharacter(static_cast<unsigned char>(byte)));
      }
      if (options_.ignore_merges) BuildWhole();
    } else {
      bytes_ = ByteTokenIds(*vocabulary_);
    }
  }

  std::string_view kind() const override { return "bpe"; }
  int32_t unk() const override { return options_.unk; }

  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const override {
    while (piece.size() > kMaxPieceBytes) {
      size_t cut = kMaxPieceBytes;
      while (cut > kMaxPieceBytes - 4 && (static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) --cut;
      EncodePart(piece.substr(0, cut), scratch, ids);
      piece.remove_prefix(cut);
    }
    EncodePart(piece, scratch, ids);
  }

 private:
  void BuildWhole() {
    whole_.Reserve(vocabulary_->size(), 0);
    for (size_t id = 0; id < vocabulary_->size(); ++id) {
      if (!vocabulary_->valid[id]) continue;
      if (const auto bytes = FromByteMapped(vocabulary_->texts[id])) whole_.Insert(*bytes, static_cast<int32_t>(id));
    }
  }

  void EncodePart(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
    if (words_apart_) {
      ForEachMarkedWord(piece, [&](std::string_view word) { EncodeWord(word, scratch, ids); });
    } else {
      EncodeWord(piece, scratch, ids);
    }
  }

  void EncodeWord(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const {
    if (piece.empty()) return;
    const bool take_whole = options_.ignore_merges ||
                            (options_.newline_runs_whole && piece.find_first_not_of('\n') == std::string_view::npos);
    if (take_whole) {
      const int32_t id = options_.byte_level ? whole_.Find(piece) : vocabulary_->Find(piece);
      if (id >= 0) {
        ids->push_back(id);
        return;
      }
    }
    std::vector<int32_t>& symbols = scratch->ids;
    symbols.clear();
    if (options_.byte_level) {
      ByteSymbols(piece, &symbols);
    } else {
      CharacterSymbols(piece, &scratch->text, &symbols);
    }
    if (symbols.size() <= kScanLimit) {
      MergeByScan(&symbols, &scratch->ranks);
      for (const int32_t id : symbols) {
        if (id >= 0) ids->push_back(id);
      }
    } else {
      MergeByQueue(symbols, scratch, ids);
    }
  }

  void ByteSymbols(std::string_view piece, std::vector<int32_t>* symbols) const {
    for (const char c : piece) {
      const int32_t id = bytes_[static_cast<unsigned char>(c)];
      if (id >= 0) {
        symbols->push_back(id);
      } else if (options_.unk >= 0) {
        if (!options_.fuse_unk || symbols->empty() || symbols->back() != options_.unk) symbols->push_back(options_.unk);
      } else if (options_.gaps_part) {
        symbols->push_back(-1);
      }
    }
  }

  void CharacterSymbols(std::string_view piece, std::string* text, std::vector<int32_t>* symbols) const {
    int pending = 0;  // an unk that waits: its neighbours may join it
    for (size_t pos = 0; pos < piece.size();) {
      const Utf8Char c = Utf8At(piece, pos);
      std::string_view spelled = piece.substr(pos, c.bytes);
      const bool first = pos == 0;
      pos += c.bytes;
      const bool last = pos >= piece.size();
      if ((!first && !options_.continuing_prefix.empty()) || (last && !options_.end_suffix.empty())) {
        text->clear();
        if (!first) text->append(options_.continuing_prefix);
        text->append(spelled);
        if (last) text->append(options_.end_suffix);
        spelled = *text;
      }
      const int32_t id = vocabulary_->Find(spelled);
      if (id >= 0) {
        if (pending != 0) symbols->push_back(options_.unk);
        pending = 0;
        symbols->push_back(id);
        continue;
      }
      if (options_.byte_fallback && std::all_of(spelled.begin(), spelled.end(), [&](char byte) {
            return bytes_[static_cast<unsigned char>(byte)] >= 0;
          })) {
        for (const char byte : spelled) symbols->push_back(bytes_[static_cast<unsigned char>(byte)]);
        continue;
      }
      if (options_.unk < 0) {
        if (options_.gaps_part) symbols->push_back(-1);
        continue;
      }
      if (pending != 0 && !options_.fuse_unk) symbols->push_back(options_.unk);
      pending = 1;
    }
    if (pending != 0) symbols->push_back(options_.unk);
  }

  void MergeByScan(std::vector<int32_t>* symbols, std::vector<uint32_t>* ranks) const {
    std::vector<int32_t>& ids = *symbols;
    size_t count = ids.size();
    if (count < 2) return;
    ranks->resize(count);
    uint32_t* rank = ranks->data();
    for (size_t i = 0; i + 1 < count; ++i) rank[i] = merges_.Find(ids[i], ids[i + 1]).rank;
    while (count > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < count; ++i) {
        if (rank[i] < rank[best]) best = i;
      }
      if (rank[best] == kNoRank) break;
      ids[best] = merges_.Find(ids[best], ids[best + 1]).id;
      for (size_t i = best + 1; i + 1 < count; ++i) {
        ids[i] = ids[i + 1];
        rank[i] = rank[i + 1];
      }
      --count;
      if (best + 1 < count) rank[best] = merges_.Find(ids[best], ids[best + 1]).rank;
      if (best > 0) rank[best - 1] = merges_.Find(ids[best - 1], ids[best]).rank;
    }
    ids.resize(count);
  }

  void MergeByQueue(const std::vector<int32_t>& start, Scratch* scratch, std::vector<int32_t>* out) const {
    auto& symbols = scratch->symbols;
    symbols.resize(start.size());
    for (size_t i = 0; i < start.size(); ++i) {
      symbols[i] = {start[i], 0, 1, static_cast<int32_t>(i) - 1,
                    i + 1 < start.size() ? static_cast<int32_t>(i) + 1 : -1};
    }
    if (start.size() < kRankQueueSymbols) {
      RunMerges(HeapQueue(&scratch->heap), &symbols);
    } else {
      RunMerges(RankQueue(ranks_), &symbols);
    }
    for (int32_t i = 0; i >= 0; i = symbols[i].next) {
      if (symbols[i].id >= 0) out->push_back(symbols[i].id);
    }
  }

  template <typename Queue>
  void RunMerges(Queue queue, std::vector<Scratch::Symbol>* list) const {
    Scratch::Symbol* symbols = list->data();
    const auto push = [&](int32_t left) {
      if (left < 0 || symbols[left].next < 0) return;
      const uint32_t rank = merges_.Find(symbols[left].id, symbols[symbols[left].next].id).rank;
      if (rank != kNoRank) queue.Push(rank, static_cast<uint32_t>(left));
    };
    for (size_t i = 0; i + 1 < list->size(); ++i) push(static_cast<int32_t>(i));
    for (uint32_t rank = 0, place = 0; queue.Pop(&rank, &place);) {
      Scratch::Symbol& left = symbols[place];
      if (left.bytes == 0 || left.next < 0) continue;
      Scratch::Symbol& right = symbols[left.next];
      const MergeTable::Merge merge = merges_.Find(left.id, right.id);
      if (merge.rank != rank) continue;  // stale
      left.id = merge.id;
      right.bytes = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[left.next].prev = static_cast<int32_t>(place);
      push(left.prev);
      push(static_cast<int32_t>(place));
    }
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  MergeTable merges_;
  uint32_t ranks_;    // ranks are below
  bool words_apart_;  // no merge makes a token that holds a ▁ after another character
  BpeOptions options_;
  std::array<int32_t, 256> bytes_{};  // of byte characters, or of <0xNN>
  StringIndex whole_;                 // by raw bytes; for ignore_merges
};

}  // namespace

int ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

std::array<int32_t, 256> ByteTokenIds(const Vocabulary& vocabulary) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::array<int32_t, 256> ids;
  for (int byte = 0; byte < 256; ++byte) {
    const char text[] = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    ids[byte] = vocabulary.Find({text, 6});
  }
  return ids;
}

Result<std::unique_ptr<TokenModel>> MakeBpeModel(std::shared_ptr<const Vocabulary> vocabulary,
                                                 const std::vector<std::pair<std::string, std::string>>& merges,
                                                 BpeOptions options) {
  if (merges.size() >= kNoRank) return InvalidInput("too many merges");
  MergeTable table(merges.size());
  std::string joined;
  // Words may be merged one by one if no merge crosses into a ▁, and a ▁ is a symbol of its own.
  bool words_apart = !options.byte_level && !options.ignore_merges && options.continuing_prefix.empty() &&
                     options.end_suffix.empty() && vocabulary->Find(kSpaceMark) >= 0;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::string& prefix = options.continuing_prefix;
    joined = left;
    joined += std::string_view(right).substr(!prefix.empty() && right.size() >= prefix.size() ? prefix.size() : 0);
    const int32_t left_id = vocabulary->Find(left), right_id = vocabulary->Find(right), id = vocabulary->Find(joined);
    if (left_id < 0 || right_id < 0 || id < 0) {
      return InvalidInput("merge " + std::to_string(rank) + " ('" + left.substr(0, 100) + "' and '" +
                          right.substr(0, 100) + "') needs the token '" +
                          (left_id < 0    ? left
                           : right_id < 0 ? right
                                          : joined)
                              .substr(0, 100) +
                          "', which is not in the vocabulary");
    }
    words_apart = words_apart && !HasInnerMark(joined);
    table.Insert(left_id, right_id, {static_cast<uint32_t>(rank), id});
  }
  return std::unique_ptr<TokenModel>(std::make_unique<BpeModel>(
      std::move(vocabulary), std::move(table), static_cast<uint32_t>(merges.size()), words_apart, std::move(options)));
}

}  // namespace hone
