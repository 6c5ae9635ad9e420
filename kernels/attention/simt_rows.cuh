// Sixteen-byte rows as float32 numbers: what kernels on CUDA cores calculate with, whatever the element type.

#pragma once

#include "common/row.cuh"

constexpr int ROW_FLOAT4S = ROW_ELEMENTS / 4;  // a row as float32
constexpr int ROW_WORDS = 4;                   // a row as 32-bit words
constexpr int WORD_ELEMENTS = 4 / sizeof(Element);

__device__ __forceinline__ float row_element(const uint4& bytes, int index) {
  return to_float(as_row(bytes).elements[index]);
}

// Elements 4 * part to 4 * part + 3.
__device__ __forceinline__ float4 row_part(const uint4& bytes, int part) {
  return make_float4(row_element(bytes, 4 * part), row_element(bytes, 4 * part + 1),
                     row_element(bytes, 4 * part + 2), row_element(bytes, 4 * part + 3));
}

// Zero for those elements of a row of tokens that lie outside a range. A weight of zero is not enough for these:
// they may be NaN, and zero times NaN is NaN.
struct RowMask {
  uint32 words[ROW_WORDS];

  __device__ __forceinline__ RowMask(int first_token, int begin, int end) {
#pragma unroll
    for (int w = 0; w < ROW_WORDS; w++) {
      words[w] = 0;
#pragma unroll
      for (int e = 0; e < WORD_ELEMENTS; e++) {
        const int token = first_token + w * WORD_ELEMENTS + e;
        const uint32 bits = WORD_ELEMENTS == 1 ? 0xffffffffu : 0xffffu << 16 * e;
        if (token >= begin && token < end) words[w] |= bits;
      }
    }
  }

  __device__ __forceinline__ uint4 operator()(const uint4& row) const {
    return make_uint4(row.x & words[0], row.y & words[1], row.z & words[2], row.w & words[3]);
  }
};
