// An RMS norm (Zhang and Sennrich 2019, arXiv 1910.07467) without a launch of its own, between a product that adds
// to the residual stream and one that reads it. norm(x) is x times the weight of the norm over the size of x, and a
// product is linear, so who divides by the size may do that when the second product's sums are there.
//
// The first product (NORM_AHEAD, a NormKind) leaves the weighed rows beside the stream, and of each row the sum of
// squares of each tile of its columns. The second one (NORM_DUE, how many such sums a row has) asks for those,
// multiplies weighed rows, and divides.
//
// Weighed rows are in a unit, a power of two: none is further from zero than 16 bits can say if the stream is not.

#pragma once

#include "common/norm_kinds.cuh"

#ifndef NORM_AHEAD
#define NORM_AHEAD 0
#endif
#ifndef NORM_DUE
#define NORM_DUE 0
#endif

// What the first product is told, and writes.
struct NormAhead {
  Element* rows;          // [num_rows, width], weighed
  const Element* weight;  // [width]
  float* squares;         // [tiles of columns, num_rows]
  float unit;             // one over that of the rows
};

// What the second one reads.
struct NormDue {
  const float* squares;  // [NORM_DUE, num_rows]
  int width;
  float epsilon, unit;
};

// Numbers of the stream, as it holds them, to weighed ones; returns the sum of their squares.
template <int COUNT>
__device__ __forceinline__ float weigh(float (&values)[COUNT], const float (&weights)[COUNT], float unit) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    squares = fmaf(values[i], values[i], squares);
    values[i] *= gain<NORM_AHEAD>(weights[i]) * unit;
  }
  return squares;
}

// What the sums of COUNT rows are multiplied by, found out by BY threads, whole warps of them.
template <int COUNT, int BY>
struct RowFactors {
  static constexpr int OF_ROW = BY / COUNT >= 8 ? 8 : BY / COUNT >= 4 ? 4 : BY / COUNT >= 2 ? 2 : 1;  // threads
  static constexpr int MINE = ceil_div(NORM_DUE, OF_ROW);
  static_assert(BY >= COUNT && COUNT * OF_ROW % WARP_SIZE == 0, "whole warps");

  const int row, part;
  float squares[MINE] = {};

  __device__ __forceinline__ explicit RowFactors(int thread) : row(thread / OF_ROW), part(thread % OF_ROW) {}

  // All at once, and nobody waits for them yet.
  __device__ __forceinline__ void load(const NormDue& due, int first_row, int num_rows) {
    if (row >= COUNT || first_row + row >= num_rows) return;
    const float* from = due.squares + first_row + row;
#pragma unroll
    for (int i = 0; i < MINE; i++) {
      const int number = part + i * OF_ROW;
      if (number < NORM_DUE) squares[i] = __ldcg(from + number * num_rows);
    }
  }

  // To shared memory.
  __device__ __forceinline__ void store(float (&factors)[COUNT], const NormDue& due) const {
    if (row >= COUNT) return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; i++) sum += squares[i];
    sum = warp_sum<OF_ROW / 2, 1>(sum);
    if (part == 0) factors[row] = rsqrtf(sum / due.width + due.epsilon) * due.unit;
  }
};
