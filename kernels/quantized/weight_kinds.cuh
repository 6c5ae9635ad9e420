// Weights as they are stored, in 16, 8 or 4 bits, and how a lane's 8 of them become the 16-bit operand of a
// product, in registers. Does not know how they get there.
//
// A product does not mind in which order its inner elements are taken, as long as both operands agree: 8 elements
// of 4 bits become the pairs (0, 4), (1, 5), (2, 6), (3, 7), which a word gives by a mask each, and the input's 8
// are brought into that order once. Digits are exact in 16 bits; scales are applied to sums.
//
// The trick behind it: a float whose last bit is worth 1 has an integer in its lowest bits, so that integers become
// floats by an OR and a subtraction (float16: 1024 and more, bfloat16: 128 and more).

#pragma once

#include "common/row_pieces.cuh"

#define WHOLE_WEIGHTS 0  // 16 bits, of the type of the input
#define INT8_WEIGHTS 1
#define FP8_WEIGHTS 2   // e4m3
#define INT4_WEIGHTS 3  // element 2i in the lower half of byte i; stored is 8 more than the digit

#ifndef WEIGHT_KIND
#define WEIGHT_KIND WHOLE_WEIGHTS
#endif

constexpr bool FEW_BITS = WEIGHT_KIND != WHOLE_WEIGHTS;
constexpr int WEIGHT_BITS = !FEW_BITS ? 16 : WEIGHT_KIND == INT4_WEIGHTS ? 4 : 8;
constexpr int STORED_BYTES = PIECE * WEIGHT_BITS / 8;  // of a piece

template <int BYTES>
struct StoredAs;
template <>
struct StoredAs<16> {
  using Type = uint4;
};
template <>
struct StoredAs<8> {
  using Type = uint2;
};
template <>
struct StoredAs<4> {
  using Type = uint32;
};
using StoredPiece = StoredAs<STORED_BYTES>::Type;

// --- pairs ------------------------------------------------------------------------------------------------------

// `(x & mask) | bits`. NOTE: of two constants one has to be in a register, which a compiler avoids by two
// instructions.
__device__ __forceinline__ uint32 masked(uint32 x, uint32 mask, uint32 bits) {
  uint32 found;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(found) : "r"(x), "r"(mask), "r"(bits));
  return found;
}

template <typename T>
struct Pairs;

template <>
struct Pairs<__half> {
  static constexpr float FP8_FACTOR = 256.0f;  // the exponent of e4m3 is 8 less than that of float16
  static constexpr uint32 ONES = 0x3c003c00;

  static __device__ __forceinline__ __half2 of(uint32 bits) { return *reinterpret_cast<const __half2*>(&bits); }
  static __device__ __forceinline__ uint32 bits(__half2 pair) { return *reinterpret_cast<const uint32*>(&pair); }

  // Bytes FIRST and FIRST + 1 of a word, as signed integers.
  template <int FIRST>
  static __device__ __forceinline__ uint32 int8(uint32 word) {
    const uint32 shifted = __byte_perm(word ^ 0x80808080, 0x64646464, 0x4140 + FIRST * 0x101);
    return bits(__hsub2(of(shifted), of(0x64806480)));  // 1152
  }
  // The same as e4m3, divided by FP8_FACTOR.
  template <int FIRST>
  static __device__ __forceinline__ uint32 fp8(uint32 word) {
    const uint32 high = __byte_perm(word, 0, 0x1404 + FIRST * 0x1010);
    return (high & 0x80008000) | (high >> 1 & 0x3f803f80);
  }
  // Fields of 4 bits number FIRST and FIRST + 4 of a word, less 8.
  template <int FIRST>
  static __device__ __forceinline__ uint32 int4(uint32 word) {
    const uint32 fields = FIRST < 2 ? word : word >> 8;
    if (FIRST % 2 == 0) return bits(__hsub2(of(masked(fields, 0x000f000f, 0x64006400)), of(0x64086408)));  // 1032
    // Sixteen times as much: (1024 + 16 x) / 16 - 72.
    return bits(__hfma2(of(masked(fields, 0x00f000f0, 0x64006400)), of(0x2c002c00), of(0xd480d480)));
  }
};

#if __CUDA_ARCH__ >= 800
template <>
struct Pairs<__nv_bfloat16> {
  static constexpr float FP8_FACTOR = 1.0f;
  static constexpr uint32 ONES = 0x3f803f80;

  static __device__ __forceinline__ __nv_bfloat162 of(uint32 bits) {
    return *reinterpret_cast<const __nv_bfloat162*>(&bits);
  }
  static __device__ __forceinline__ uint32 bits(__nv_bfloat162 pair) {
    return *reinterpret_cast<const uint32*>(&pair);
  }

  // The lower 7 bits less the sign's 128.
  template <int FIRST>
  static __device__ __forceinline__ uint32 int8(uint32 word) {
    const uint32 shifted = __byte_perm(word, 0x43434343, 0x4140 + FIRST * 0x101);
    return bits(__hsub2(of(shifted & 0xff7fff7f), of(shifted & 0xff80ff80)));
  }
  // The exponent is put right by a factor of 2^120, so that what is summed up is no smaller than it is.
  template <int FIRST>
  static __device__ __forceinline__ uint32 fp8(uint32 word) {
    const uint32 high = __byte_perm(word, 0, 0x1404 + FIRST * 0x1010);
    return bits(__hmul2(of((high & 0x80008000) | (high >> 4 & 0x07f007f0)), of(0x7b807b80)));
  }
  template <int FIRST>
  static __device__ __forceinline__ uint32 int4(uint32 word) {
    return bits(__hsub2(of(masked(word >> 4 * FIRST, 0x000f000f, 0x43004300)), of(0x43084308)));  // 136
  }
};
#endif

// A scale for both elements of a pair.
template <typename T>
__device__ __forceinline__ uint32 twice(__half x, float factor) {
  if (factor == 1.0f && Pairs<T>::ONES == Pairs<__half>::ONES) return __half_as_ushort(x) * 0x10001u;
  return pack_pair<T>(factor * __half2float(x), factor * __half2float(x));
}

// --- pieces -----------------------------------------------------------------------------------------------------

// What each weight is multiplied by besides its scale.
constexpr float WEIGHT_FACTOR = WEIGHT_KIND == FP8_WEIGHTS ? Pairs<Element>::FP8_FACTOR : 1.0f;

__device__ __forceinline__ uint4 as_elements(uint4 stored) { return stored; }

template <int KIND = WEIGHT_KIND>
__device__ __forceinline__ uint4 as_elements(uint2 stored) {
  using Of = Pairs<Element>;
  if constexpr (KIND == FP8_WEIGHTS) {
    return make_uint4(Of::fp8<0>(stored.x), Of::fp8<2>(stored.x), Of::fp8<0>(stored.y), Of::fp8<2>(stored.y));
  } else {
    return make_uint4(Of::int8<0>(stored.x), Of::int8<2>(stored.x), Of::int8<0>(stored.y), Of::int8<2>(stored.y));
  }
}

__device__ __forceinline__ uint4 as_elements(uint32 stored) {
  using Of = Pairs<Element>;
  return make_uint4(Of::int4<0>(stored), Of::int4<1>(stored), Of::int4<2>(stored), Of::int4<3>(stored));
}

// Eight elements of the input in the order in which those of a weight come.
template <int KIND = WEIGHT_KIND>
__device__ __forceinline__ uint4 in_order_of_weights(uint4 input) {
  if constexpr (KIND != INT4_WEIGHTS) return input;
  return make_uint4(__byte_perm(input.x, input.z, 0x5410), __byte_perm(input.x, input.z, 0x7632),
                    __byte_perm(input.y, input.w, 0x5410), __byte_perm(input.y, input.w, 0x7632));
}
