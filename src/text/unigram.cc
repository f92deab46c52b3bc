// The unigram model: of all ways to cover the text with tokens, the one with the highest sum of scores (Viterbi). A
// character that no token covers alone may also be unknown, at ten below the lowest score; neighbouring unknowns are
// one.
#include <algorithm>

#include "text/model.h"
#include "text/utf8.h"

namespace hone {
namespace {

constexpr double kUnknownPenalty = 10.0;

class UnigramModel final : public TokenModel {
 public:
  UnigramModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
               const std::vector<bool>& excluded, double lowest_score, UnigramOptions options)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        options_(options),
        unknown_score_(lowest_score - kUnknownPenalty) {
    std::vector<std::pair<std::string_view, int32_t>> entries;
    for (size_t id = 0; id < vocabulary_->size(); ++id) {
      const bool out = !vocabulary_->valid[id] || (id < excluded.size() && excluded[id]) || id >= scores_.size();
      if (!out) entries.emplace_back(vocabulary_->texts[id], static_cast<int32_t>(id));
    }
    trie_ = Trie(std::move(entries));
    if (options_.byte_fallback) bytes_ = ByteTokenIds(*vocabulary_);
  }

  std::string_view kind() const override { return "unigram"; }
  int32_t unk() const override { return options_.unk; }

  void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const override {
    if (piece.empty()) return;
    auto& path = scratch->path;
    path.assign(piece.size() + 1, {0, -1, -1});
    path[0].begin = 0;
    for (size_t pos = 0; pos < piece.size();) {
      const size_t character = Utf8At(piece, pos).bytes;
      const double score = path[pos].score;
      bool covered = false;
      const auto offer = [&](size_t end, int32_t id, double sum) {
        if (path[end].begin < 0 || sum > path[end].score) path[end] = {sum, static_cast<int64_t>(pos), id};
      };
      trie_.Prefixes(piece.substr(pos), [&](size_t length, int32_t id) {
        offer(pos + length, id, scores_[static_cast<size_t>(id)] + score);
        covered |= length == character;
      });
      if (!covered) offer(pos + character, options_.unk, unknown_score_ + score);
      pos += character;
    }
    // Back along the best path: ids in reverse, runs of unknowns as one.
    const size_t first = ids->size();
    for (size_t end = piece.size(); end > 0;) {
      size_t begin = static_cast<size_t>(path[end].begin);
      const int32_t id = path[end].id;
      if (id != options_.unk) {
        ids->push_back(id);
        end = begin;
        continue;
      }
      while (begin > 0 && path[begin].id == options_.unk) begin = static_cast<size_t>(path[begin].begin);
      EmitUnknown(piece.substr(begin, end - begin), ids);
      end = begin;
    }
    std::reverse(ids->begin() + static_cast<std::ptrdiff_t>(first), ids->end());
  }

 private:
  // Appends in reverse.
  void EmitUnknown(std::string_view text, std::vector<int32_t>* ids) const {
    const int32_t whole = options_.joined_unknowns ? vocabulary_->Find(text) : -1;
    if (whole >= 0) {
      ids->push_back(whole);
      return;
    }
    if (options_.byte_fallback &&
        std::all_of(text.begin(), text.end(), [&](char c) { return bytes_[static_cast<unsigned char>(c)] >= 0; })) {
      for (auto c = text.rbegin(); c != text.rend(); ++c) ids->push_back(bytes_[static_cast<unsigned char>(*c)]);
      return;
    }
    if (options_.unk >= 0) ids->push_back(options_.unk);
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<double> scores_;  // by id
  Trie trie_;
  UnigramOptions options_;
  double unknown_score_;
  std::array<int32_t, 256> bytes_{};
};

}  // namespace

std::unique_ptr<TokenModel> MakeUnigramModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                                             const std::vector<bool>& excluded, double lowest_score,
                                             UnigramOptions options) {
  return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores), excluded, lowest_score, options);
}

}  // namespace hone
