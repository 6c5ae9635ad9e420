// The softmax of a warpgroup's score tile, key tile after key tile, in the registers that hold the scores.
//
// A thread has two rows of the tile (g and g + 8 of its warp, g = lane / 4) and of each the columns 8j + 2q, 8j +
// 2q + 1, q = lane % 4; a row is spread over the four lanes of a quad. Scores are in units of log2, so exp is one
// instruction. Online softmax: Milakov and Gimelshein 2018, arXiv 1805.02867.

#pragma once

#include "attention/scores.cuh"
#include "common/common.cuh"
#include "common/online_softmax.cuh"
#include "attention/wgmma_items.cuh"

// With SOFT_CAP or ALIBI the scores are finished before the softmax; otherwise the scale goes into the exponent.
constexpr bool FINISHED_SCORES = SOFT_CAP || ALIBI;

// `position[i]`: of row i's token, relative to column 2q of the tile; `slope[i]`: of its head.
__device__ __forceinline__ void finish_scores(float (&scores)[TILE_KEYS / 2], const int (&position)[2],
                                              const ScoreScale& scale, const float (&slope)[2]) {
  if constexpr (FINISHED_SCORES) {
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 2; n++) {
      const int row = n / 2 % 2, column = n / 4 * 8 + n % 2;
      scores[n] = scale.score(scores[n], slope[row], column - position[row]);
    }
  }
}

// A query sees the keys up to its own, as far back as the window goes. Overwrites what may be NaN.
__device__ __forceinline__ void mask_scores(float (&scores)[TILE_KEYS / 2], const int (&position)[2], int window) {
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 2; n++) {
    const int row = n / 2 % 2, column = n / 4 * 8 + n % 2;
    if (!sees(position[row], column, window)) scores[n] = NEGATIVE_INFINITY;
  }
}

struct OnlineSoftmax {
  float top[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY};  // of the rows so far, unscaled
  float sum[2] = {0.f, 0.f};                              // of the weights in this thread's columns

  // Turns scores into weights, relative to the new maximum; `decay[i]` is what row i's earlier sums are worth now.
  __device__ __forceinline__ void step(float (&scores)[TILE_KEYS / 2], float (&decay)[2], float scale) {
#pragma unroll
    for (int row = 0; row < 2; row++) {
      float part[2] = {top[row], NEGATIVE_INFINITY};
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 2; n += 4) {
        part[0] = fmaxf(part[0], scores[n + 2 * row]);
        part[1] = fmaxf(part[1], scores[n + 2 * row + 1]);
      }
      const float highest = warp_max<2>(fmaxf(part[0], part[1]));
      const float shift = highest == NEGATIVE_INFINITY ? 0.f : highest * scale;
      decay[row] = exp2_fast(top[row] * scale - shift);
      top[row] = highest;
      part[0] = sum[row] * decay[row];
      part[1] = 0.f;
#pragma unroll
      for (int n = 0; n < TILE_KEYS / 2; n += 4) {
        float* pair = scores + n + 2 * row;
        pair[0] = exp2_fast(pair[0] * scale - shift);
        pair[1] = exp2_fast(pair[1] * scale - shift);
        part[0] += pair[0];
        part[1] += pair[1];
      }
      sum[row] = part[0] + part[1];
    }
  }
};

// The weights as the A operand of the product with the values: 16 keys to a group of four registers.
__device__ __forceinline__ void pack_weights(uint32 (&packed)[TILE_KEYS / 16][4],
                                             const float (&weights)[TILE_KEYS / 2]) {
#pragma unroll
  for (int n = 0; n < TILE_KEYS / 4; n++)
    packed[n / 4][n % 4] = pack_pair<Element>(weights[2 * n], weights[2 * n + 1]);
}

// The four lanes of a quad hold a 4 x 4 matrix, a column each; afterwards each holds a row.
__device__ __forceinline__ void transpose_quad(uint32 (&v)[4]) {
  const int lane = threadIdx.x % WARP_SIZE;
  const bool odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32 got = __shfl_xor_sync(FULL_WARP, odd ? v[i] : v[i + 1], 1);
    if (odd)
      v[i] = got;
    else
      v[i + 1] = got;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint32 got = __shfl_xor_sync(FULL_WARP, high ? v[i] : v[i + 2], 2);
    if (high)
      v[i] = got;
    else
      v[i + 2] = got;
  }
}
