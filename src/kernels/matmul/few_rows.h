// One to eight rows of x against one tile, straight from its packed bytes: unpacked codes stay in registers, each byte of W is
// read once for all rows. What decoding runs, and in several calls up to kRowsInParts rows (VNNI) or any (AVX2); more unpack into L1
// instead (tile.h), which serves any number of rows.
//
// The bits are those of the general path of the same ISA: integer sums are exact, and the float operations of an element of y
// are the same in the same order. So which of the two paths ran is no part of a result (matmul_test.cc holds that).
//
// few_rows.inc lists the kernels; a type or ISA without a line takes the general path.
#pragma once

#include <stdint.h>

#include "kernels/matmul/read_ranges.h"
#include "kernels/matmul/tile.h"

namespace hone {

constexpr int kFewRows = 8;       // of a call
constexpr int kRowsOfWords = 4;   // from so many rows of a call on kernels of VNNI take words (few_rows_words_vnni.h)
constexpr int kRowsInParts = 27;  // of a job that is multiplied by calls of up to kFewRows, where kernels take groups (matmul.cc)
// Codes without groups (AVX2) are multiplied so whatever the rows are. From so many on x is taken in blocks that stay in L2.
constexpr int kRowsToBlock = 128;

// A term of a row's group of 32 with all that a kernel needs of it, so that one register points at the groups of eight rows.
struct FewRowsGroup {
  int8_t codes[32];
  float scale;      // of all terms
  int32_t init[2];  // the second for groups of 16 only
  float sum;        // of all terms, for minimums: groups of 32 only
};
static_assert(sizeof(FewRowsGroup) == 48);

// The same for kernels that multiply words: all terms in one number.
struct FewRowsWords {
  int16_t words[32];  // of four neighbours first 0 and 2, then 1 and 3
  float scale;
  int32_t init[2];
  float sum;
};
static_assert(sizeof(FewRowsWords) == 80);

struct FewRowsTile {
  const uint8_t* chunks;  // the tile, all of K (panel_format.h)
  ReadRanges* ahead;      // what is asked for on the way
  int panels;             // 1 or 2
  int64_t k;
  int rows;               // 1 .. kFewRows
  float* accumulator;     // [rows][32], written (not added to); the second panel's columns only if there is one

  // Codes: rows rounded to int8, as in CodeTile.
  int terms;
  int64_t term_rows;
  const int8_t* x;
  int64_t x_stride;
  const float* x_scales;
  int64_t x_scale_stride;
  const uint8_t* x_wide;   // as x_scales: RoundedRow::wide; read by kernels of AVX2, with two terms
  const int32_t* x_init;
  const float* x_sums;
  int64_t x_group_stride;
  // The same, made for kernels of VNNI only.
  const FewRowsGroup* x_groups;  // [k / 32][terms][rows], of fewer than kRowsOfWords rows
  const FewRowsWords* x_words;   // [k / 32][rows], of others

  // Floats.
  const float* x_floats;
  int64_t x_floats_stride;
};

using FewRowsFn = void (*)(const FewRowsTile& tile);

// A rounded row (RoundRowFn) to the words of `rows` rows side by side. Codes of W have scales of `group` elements.
struct RowToWords {
  int64_t k, group;
  const int8_t* codes;
  const int8_t* second;        // null: one term
  const float* scales;         // [k / 32]
  const int32_t* init;         // [k / group], of the first term
  const int32_t* second_init;
  const float* sums;           // [k / group]
  FewRowsWords* to;
  int64_t rows;
};
void WriteWordsVnni(const RowToWords& row);

#define HONE_FEW_ROWS(type, isa) void FewRows##type##isa(const FewRowsTile& tile);
#include "kernels/matmul/few_rows.inc"
#undef HONE_FEW_ROWS

}  // namespace hone
