// The models of tokenizers: a piece of text to ids. What pieces are is the pre-tokenizer's matter (pre_tokenizer.h).
//
// Models are immutable and thread-safe; Scratch holds the memory that one call of Encode reuses from piece to piece.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/string_index.h"
#include "text/trie.h"

namespace hone {

// Memory of one Encode call.
struct Scratch {
  struct Symbol {
    int32_t id;
    uint32_t begin, bytes;  // of the text; 0 bytes: merged into its left neighbour
    int32_t prev, next;
  };
  struct PathEnd {
    double score;
    int64_t begin;  // -1: not reached
    int32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<PathEnd> path;
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks;
  std::string text;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual std::string_view kind() const = 0;
  // Appends the ids of `piece`. REQUIRES: a model that is not byte-level gets valid UTF-8, except SpmModel.
  virtual void Encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* ids) const = 0;
  virtual int32_t unk() const { return -1; }
};

// The vocabulary as models read it. Ids may have holes; a hole's text is "".
struct Vocabulary {
  std::vector<std::string> texts;  // by id
  std::vector<bool> valid;         // by id
  StringIndex ids;                 // by text

  int32_t Find(std::string_view text) const { return ids.Find(text); }
  size_t size() const { return texts.size(); }
};

// ---- BPE (bpe.cc): merges by rank. Sennrich et al. 2016.

struct BpeOptions {
  bool byte_level = false;     // symbols are the bytes of the piece; the vocabulary is in the byte alphabet
  bool ignore_merges = false;  // a piece that is in the vocabulary is taken whole
  bool byte_fallback = false;  // a character that is no token becomes <0xNN> tokens
  bool fuse_unk = false;
  int32_t unk = -1;
  bool newline_runs_whole = false;  // gemma4: a piece of newlines only that is in the vocabulary is taken whole
  // An unknown symbol without unk: left out before merging (false), or it also keeps its neighbours apart (true).
  bool gaps_part = false;
  std::string continuing_prefix;  // "##": on every character but the first
  std::string end_suffix;         // "</w>": on the last
};
// `merges` in order of rank. A merge that names an unknown token, or makes one, is an error naming it.
Result<std::unique_ptr<TokenModel>> MakeBpeModel(std::shared_ptr<const Vocabulary> vocabulary,
                                                 const std::vector<std::pair<std::string, std::string>>& merges,
                                                 BpeOptions options);

// ---- SentencePiece BPE (spm.cc): merges by the score of the result. Kudo and Richardson 2018.

// `scores` by id. Characters that are no token become byte tokens, or unk.
std::unique_ptr<TokenModel> MakeSpmModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
                                         int32_t unk);

// ---- Unigram (unigram.cc): the most probable path. Kudo 2018.

struct UnigramOptions {
  int32_t unk = -1;
  bool byte_fallback = false;
  bool joined_unknowns = false;  // neighbouring unknowns that join to a token are that token
};
// `scores` by id; ids in `excluded` never match. Without unk, text that no token covers is left out.
std::unique_ptr<TokenModel> MakeUnigramModel(std::shared_ptr<const Vocabulary> vocabulary, std::vector<double> scores,
                                             const std::vector<bool>& excluded, double lowest_score,
                                             UnigramOptions options);

// ---- WordPiece and WordLevel (wordpiece.cc): longest match first; whole words.

struct WordPieceOptions {
  int32_t unk = -1;
  std::string continuing_prefix = "##";
  size_t max_characters = 100;  // of a word; a longer one is unk
};
std::unique_ptr<TokenModel> MakeWordPieceModel(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options);
std::unique_ptr<TokenModel> MakeWordLevelModel(std::shared_ptr<const Vocabulary> vocabulary, int32_t unk);

// The ids of <0x00> ... <0xFF>; -1 where missing.
std::array<int32_t, 256> ByteTokenIds(const Vocabulary& vocabulary);
// The byte of "<0xNN>", or -1.
int ByteOfToken(std::string_view text);

}  // namespace hone
