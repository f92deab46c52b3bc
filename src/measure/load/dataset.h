// What a load client sends: conversations of one or more turns, made of random words or read from a file. Pure
// functions of a text and a seed; no tokenizer: lengths in tokens are reached through the tokens a word that the server
// counts (WordTokens). Kinds, keys and lengths: docs/measure.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"

namespace hone {

struct LoadTurn {
  std::string text;       // what the user says
  int output_tokens = 0;  // of the answer
};

struct LoadTask {
  double at_s = 0;     // trace: when the first turn is sent
  std::string system;  // in front of the first turn; "" for none
  std::vector<LoadTurn> turns;
};

enum class DatasetKind { kRandom, kShared, kMultiTurn, kFile, kTrace };
Result<DatasetKind> ParseDatasetKind(std::string_view name);  // "random", "shared", "multi-turn", "file", "trace"
std::string DatasetName(DatasetKind kind);

// A prompt of w words has about base + slope * w tokens.
struct WordTokens {
  double base = 0, slope = 1.3;
  bool counted = false;  // by the server; otherwise a guess
};

struct DatasetSpec {
  DatasetKind kind = DatasetKind::kRandom;
  int input_tokens = 256, output_tokens = 0;  // output 0: 64, or as the file's own answers are long
  double range = 0;                           // lengths are uniform in [n (1 - range), n (1 + range)]
  int shared_words = 0;                       // words that all prompts of a prefix begin with
  int prefixes = 1;                           // different shared beginnings
  int turns = 4;                              // multi-turn
  double speed = 1;                           // trace: timestamps are divided by it
  WordTokens word_tokens;
};

// The tasks of one run. Random kinds: the same spec, n and seed give the same tasks, other seeds others. kFile: `text`
// holds JSON lines or one JSON array; items in an order drawn from the seed, again from the beginning when n is larger.
// kTrace: the lines in the order of their time, at most n of them (n 0: all).
// Errors (invalid input) name the line and the field; an empty file is one.
Result<std::vector<LoadTask>> MakeTasks(const DatasetSpec& spec, std::string_view text, int n, uint64_t seed);

// `words` random words, one space between them. The most frequent kind of prompt in a benchmark: no sense, no repeats.
std::string RandomWords(int words, Rng& rng);

}  // namespace hone
