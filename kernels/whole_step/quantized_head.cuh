// The quantized head: what a screened step of persistent_decode.cu reads in the place of the vocabulary
// itself, and what a thread block remembers of it. ops/whole_step/screened_head.py makes it.
//
// Row i of the vocabulary is `scale` times integers q of 8 bits, but for a rest. So its product with a normalised
// row x is scale * (q . x), but for `width` * |x| (Cauchy-Schwarz), where `width` is the length of the rest, and a
// little more for what sums of floats lose. x is taken in DIGITS digits of 8 bits, which makes the products exact.

#pragma once

#include "whole_step/shapes.cuh"

#ifndef SCREENED
#define SCREENED 0  // 1: the vocabulary is screened by its quantized head, and there are no logits
#endif
#ifndef SCREENED_TILES
#define SCREENED_TILES 12  // of a thread block, at most
#endif

constexpr int QUANTIZED_ROWS = 32;            // of a tile
constexpr int DIGITS = 3;                     // of an element of x
constexpr float LARGEST_DIGITS = 4194304.0f;  // 2^22, of an element

// What digits may be off the elements, times integers of 8 bits: half of that by rounding, and more than what is
// lost where sums of the three digits are added as floats.
constexpr float DIGITS_OFF = 127.0f * HIDDEN;

// Rows of the quantized head as lanes multiply them: a piece is what a lane has of 16 rows and a step, as in
// mma_integers.cuh, its inner elements 8q to 8q + 7 of the step. Rows past the vocabulary's end are zeros.
struct QuantizedTile {
  __align__(128) uint4 pieces[QUANTIZED_ROWS / 16][HIDDEN / STEP][WARP_SIZE];
  uint32 constants[QUANTIZED_ROWS];  // of a row `scale` and, in the upper half, `width`; both bfloat16
};

// What warps that share a tile have summed up, side by side.
template <int PARTS>
using ScreenedSums = float[PARTS][NUM_TOKENS][QUANTIZED_ROWS];

template <int TEAMS>
struct Screening {
  static constexpr int ROWS = SCREENED_TILES * QUANTIZED_ROWS;  // of the thread block

  // Signed digits of x, the lowest first; rows of neighbouring digits begin in different banks.
  __align__(16) int8 digits[NUM_TOKENS][DIGITS][HIDDEN + 32];
  uint32 highest[NUM_TOKENS][ROWS];        // what a logit may be at most, `ordered_bits`; 0: no row
  uint32 reached[NUM_TOKENS];              // what the best logit is at least
  int num_candidates[2];                   // even and odd rows
  unsigned short candidates[2][ROWS / 2];  // which of the thread block's rows
  uint64 gathered[TEAMS];                  // barriers: a team's candidates have come
};
