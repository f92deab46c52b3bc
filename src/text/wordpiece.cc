// WordPiece: the longest token first, from left to right; a word that cannot be covered is one unk (Devlin et al.
// 2018). WordLevel: a word is a token or unk.
#include "text/model.h"
#include "text/utf8.h"

namespace hone {
namespace {

class WordPieceModel final : public TokenModel {
 public:
  WordPieceModel(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options)
      : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
    std::vector<std::pair<std::string_view, int32_t>> starts, continuations;
    for (size_t id = 0; id < vocabulary_->size(); ++id) {
      if (!vocabulary_->valid[id]) continue;
      const std::string_view text = vocabulary_->texts[id];
      starts.emplace_back(text, static_cast<int32_t>(id));
      if (text.starts_with(options_.continuing_prefix)) {
        continuations.emplace_back(text.substr(options_.continuing_prefix.size()), static_cast<int32_t>(id));
      }
    }
    starts_ = Trie(std::move(starts));
    continuations_ = Trie(std::move(continuations));
  }

  std::string_view kind() const override { return "wordpiece"; }
  int32_t unk() const override { return options_.unk; }

  void Encode(std::string_view piece, Scratch* /*scratch*/, std::vector<int32_t>* ids) const override {
    if (piece.empty()) return;
    const size_t first = ids->size();
    if (!Covers(piece, ids)) {
      ids->resize(first);
      if (options_.unk >= 0) ids->push_back(options_.unk);
    }
  }

 private:
  bool Covers(std::string_view piece, std::vector<int32_t>* ids) const {
    size_t characters = 0;
    for (const char c : piece) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (characters > options_.max_characters) return false;
    for (size_t pos = 0; pos < piece.size();) {
      size_t longest = 0;
      int32_t best = -1;
      (pos == 0 ? starts_ : continuations_).Prefixes(piece.substr(pos), [&](size_t length, int32_t id) {
        longest = length;
        best = id;
      });
      if (best < 0) return false;
      ids->push_back(best);
      pos += longest;
    }
    return true;
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;
  Trie starts_, continuations_;
};

class WordLevelModel final : public TokenModel {
 public:
  WordLevelModel(std::shared_ptr<const Vocabulary> vocabulary, int32_t unk)
      : vocabulary_(std::move(vocabulary)), unk_(unk) {}
  std::string_view kind() const override { return "wordlevel"; }
  int32_t unk() const override { return unk_; }
  void Encode(std::string_view piece, Scratch* /*scratch*/, std::vector<int32_t>* ids) const override {
    const int32_t id = vocabulary_->Find(piece);
    if (id >= 0) {
      ids->push_back(id);
    } else if (unk_ >= 0) {
      ids->push_back(unk_);
    }
  }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  int32_t unk_;
};

}  // namespace

std::unique_ptr<TokenModel> MakeWordPieceModel(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options) {
  return std::make_unique<WordPieceModel>(std::move(vocabulary), std::move(options));
}

std::unique_ptr<TokenModel> MakeWordLevelModel(std::shared_ptr<const Vocabulary> vocabulary, int32_t unk) {
  return std::make_unique<WordLevelModel>(std::move(vocabulary), unk);
}

}  // namespace hone
