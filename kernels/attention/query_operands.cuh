// What a decode over a cache of bytes multiplies: halves whatever the type of the query, or keys that are whole
// numbers as they are, by a query in whole numbers of 16 bits.
//
// A row of the query comes in a unit of its own: a power of two, so that a bfloat16 of any size fits into a half,
// or the 32,512th part of its largest element, so that a number is 256 times its upper byte and its lower one, both
// with a sign.

#pragma once

#include "common/byte_elements.cuh"

#if CACHE_KIND
using Operand = __half;
#else
using Operand = Element;
#endif

// Whether keys are multiplied as whole numbers.
#if CACHE_KIND == 1 && __CUDA_ARCH__ >= 800
constexpr bool INTEGER_KEYS = true;
#else
constexpr bool INTEGER_KEYS = false;
#endif

template <typename A, typename B>
constexpr bool IS_SAME = false;
template <typename A>
constexpr bool IS_SAME<A, A> = true;

// Whether rows of Q are brought into operands in a unit of their own.
constexpr bool QUERY_UNITS = INTEGER_KEYS || !IS_SAME<Operand, Element>;

#if CACHE_KIND

// What one is in a row of operands, and its inverse.
struct QueryUnit {
  float unit, inverse;

  __device__ __forceinline__ explicit QueryUnit(float largest) {
    if constexpr (INTEGER_KEYS) {
      unit = largest * (1.0f / 32512.0f);  // 127 * 256
      inverse = largest > 1e-30f ? __fdividef(32512.0f, largest) : 0.0f;
    } else {  // a power of two that leaves the largest below 2^14
      const uint32 exponent = min(max(__float_as_uint(largest) >> 23, 64u), 192u);
      unit = __uint_as_float((exponent - 13) << 23);
      inverse = __uint_as_float((254 + 13 - exponent) << 23);
    }
  }
};

__device__ __forceinline__ float query_element(const uint4 (&pieces)[2], int i) {
  const uint32 words[4] = {pieces[i / 8].x, pieces[i / 8].y, pieces[i / 8].z, pieces[i / 8].w};
  const uint32 word = words[i % 8 / 2];
  const unsigned short bits = i % 2 ? word >> 16 : word & 0xffffu;
  return to_float(*reinterpret_cast<const Element*>(&bits));
}

// Sixteen elements -> their upper bytes and then their lower ones, or halves.
__device__ __forceinline__ void make_operands(uint4 (&pieces)[2], float inverse) {
  uint32 words[8] = {};
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const float x = __fmul_rn(query_element(pieces, i), inverse);
    if constexpr (INTEGER_KEYS) {
      const int number = __float2int_rn(x), upper = (number + 128) >> 8;
      words[i / 4] |= (upper & 0xffu) << 8 * (i % 4);
      words[4 + i / 4] |= (number & 0xffu) << 8 * (i % 4);
    } else {
      words[i / 2] |= static_cast<uint32>(__half_as_ushort(__float2half_rn(x))) << 16 * (i % 2);
    }
  }
  pieces[0] = make_uint4(words[0], words[1], words[2], words[3]);
  pieces[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

#endif
