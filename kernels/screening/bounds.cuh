// What a row's logit is at most, by the copy of the vocabulary in 8-bit integers, and where such estimates lie.
//
// A row of the vocabulary is its scale times its integers and a rest of length `width`; a token's input is its own
// scale times two digits of 8 bits for each element and a rest as well. So by Cauchy and Schwarz a logit is no
// further from the product of the integers than `width` times the length of the input and the length of the
// integers times the rest of the input. Widths have room for what sums in float32 lose (ops/screening/integers.py).

#pragma once

#include "common/common.cuh"

constexpr int UNIT_ROWS = 64;    // of the vocabulary, whose estimates for a token lie together
constexpr int CHUNK = 128;       // inner elements that are multiplied at a time: a row of bytes in shared memory
constexpr int DIGIT_STEP = 128;  // the first digit of an input element counts so many times as much as the second
constexpr float LARGEST_INPUT = 127.0f * DIGIT_STEP;  // in digits

// Of a row of the vocabulary, as one load; zeros where there is none.
struct alignas(16) RowBounds {
  float scale, width, length, unused;
};

// Of a token's input. Estimates are in units of its scale.
struct alignas(16) InputBounds {
  float scale, length, rest, unused;

  // What widths and lengths of rows are multiplied by.
  __device__ __forceinline__ float2 reach() const {
    const float steps = scale > 0.0f ? 1.0f / scale : 0.0f;
    return make_float2(length * steps, rest * steps);
  }
};

// Two estimates lie in a word: of rows `row` and `row + 8` of 16.
constexpr int UNIT_WORDS = UNIT_ROWS / 2;
__device__ __forceinline__ int row_of_word(int word, int half) { return word / 8 * 16 + word % 8 + 8 * half; }

// What a logit is at most, in units of its token's scale, by an estimate that may have been rounded to bfloat16.
// Infinite where that says nothing.
__device__ __forceinline__ float highest_logit(float estimate, const RowBounds& row, float2 reach) {
  const float above = fmaf(row.width, reach.x, fmaf(row.length, reach.y, fabsf(estimate) * 0x1p-8f));
  const float highest = estimate + above;
  return highest == highest ? highest : __int_as_float(0x7f800000);
}
