// Rows of a screened vocabulary: what they can be at most, and what they are.

#pragma once

#include "common/argmax.cuh"
#include "common/dependent_launch.cuh"
#include "common/row_pieces.cuh"
#include "screening/bounds.cuh"

// How far below another one a logit may lie, relative to it, and still be the same when both are rounded.
__device__ __forceinline__ constexpr float lost_in_rounding(__half) { return 0x1p-10f; }
__device__ __forceinline__ constexpr float lost_in_rounding(__nv_bfloat16) { return 0x1p-7f; }

__device__ __forceinline__ uint64 warp_best(uint64 best) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) best = max(best, __shfl_xor_sync(FULL_WARP, best, lanes));
  return best;
}

// What a token's row is chosen by.
struct Screened {
  const uint32* estimates;  // [num_units, columns, UNIT_WORDS], pairs of bfloat16
  const float* highest;     // [columns, num_units], in units of a token's scale
  const RowBounds* rows;    // [num_units, UNIT_ROWS]
  const Element* weight;    // [vocab_size, width]
  int columns, num_units, width, vocab_size;

  __device__ __forceinline__ uint32 pair(int unit, int token, int word) const {
    return __ldcg(estimates + (static_cast<int64>(unit) * columns + token) * UNIT_WORDS + word);
  }

  // What a row of the word `bits` can be at most, the first or the second one.
  __device__ __forceinline__ float highest_of(int row, uint32 bits, int half, float2 reach) const {
    const float4 own = __ldg(reinterpret_cast<const float4*>(rows + row));
    const RowBounds bounds = {own.x, own.y, own.z, own.w};
    return highest_logit(__uint_as_float(half ? bits & 0xffff0000u : bits << 16), bounds, reach);
  }

  // The row of a unit that can be the highest, by a warp.
  __device__ __forceinline__ int likeliest_row(int unit, int token, float2 reach) const {
    const int word = threadIdx.x % WARP_SIZE;
    const uint32 bits = pair(unit, token, word);
    uint64 best = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = unit * UNIT_ROWS + row_of_word(word, half);
      const float at_most = highest_of(row, bits, half, reach);
      if (row < vocab_size) best = max(best, argmax_key(at_most, row));
    }
    return argmax_row(warp_best(best));
  }

  // A row's share of `num_lanes` lanes that multiply it together, whose sum is its logit.
  template <int PIECES>
  __device__ __forceinline__ float part_of(int row, const uint4* input, int number, int num_lanes) const {
    const Element* from = weight + static_cast<int64>(row) * width;
    const int num_pieces = width / PIECE;
    float sum = 0.0f;
#pragma unroll 1
    for (int first = number; first < num_pieces; first += PIECES * num_lanes) {
      uint4 pieces[PIECES];
#pragma unroll
      for (int i = 0; i < PIECES; i++) {
        const int piece = first + i * num_lanes;
        pieces[i] = piece < num_pieces ? load_once(from + piece * PIECE) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < PIECES; i++) {
        const int piece = first + i * num_lanes;
        if (piece >= num_pieces) break;
        float left[PIECE], right[PIECE];
        unpack(pieces[i], left);
        unpack(input[piece], right);
#pragma unroll
        for (int j = 0; j < PIECE; j++) sum = fmaf(left[j], right[j], sum);
      }
    }
    return sum;
  }
};
