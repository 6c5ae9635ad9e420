// A paged cache of one byte an element: whole numbers, or floats of 8 bits (e4m3, Micikevicius et al. 2022, arXiv
// 2209.05433), with a scale for each token and KV head, of keys and of values.
//
// A page is the elements of a block in the layout of any other cache, x = 16 to a row of 16 bytes, and behind them
// the scales, bfloat16, `[num_kv_heads, BLOCK_SIZE]`. An element times its scale is the number. The scale is the
// least bfloat16 with which no element of a head passes the largest that there is.
//
// All conversions are exact, so that they are the same on every GPU, with instructions for e4m3 or without.

#pragma once

#include "common/common.cuh"

#ifndef CACHE_KIND
#define CACHE_KIND 0  // of the cache: 0 as ELEMENT says, 1 whole numbers, 2 e4m3
#endif

#if CACHE_KIND
using Cached = unsigned char;
#else
using Cached = Element;
#endif
using Scale = unsigned short;  // bits of a bfloat16

constexpr int CACHED_ROW = 16 / static_cast<int>(sizeof(Cached));  // elements in 16 bytes

__device__ __forceinline__ float scale_of(uint32 bits) { return __uint_as_float(bits << 16); }

#if CACHE_KIND

// --- into bytes -------------------------------------------------------------------------------------------------

constexpr float LARGEST_BYTE = CACHE_KIND == 1 ? 127.0f : 448.0f;
constexpr float LEAST_SCALE = 1.0f / (65536.0f * 65536.0f * 65536.0f * 65536.0f * 65536.0f * 65536.0f);  // 2^-96

// The scale of a head whose largest element is that far from zero.
__device__ __forceinline__ Scale scale_for(float largest) {
  return (__float_as_uint(fmaxf(__fdiv_rn(largest, LARGEST_BYTE), LEAST_SCALE)) + 0xffffu) >> 16;
}

// To the nearest, to the even one of two; `x` is not beyond LARGEST_BYTE but for a rounding.
__device__ __forceinline__ Cached to_byte(float x) {
#if CACHE_KIND == 1
  return static_cast<Cached>(__float2int_rn(x));
#else
  const uint32 bits = __float_as_uint(x), size = bits & 0x7fffffffu;
  uint32 found = ((size + 0x7ffffu + (size >> 20 & 1)) >> 20) - (120 << 3);
  if (size < 0x3c800000u) found = __float2int_rn(__uint_as_float(size) * 512.0f);  // below 2^-6 in steps of 2^-9
  return static_cast<Cached>(found | (bits >> 24 & 0x80u));
#endif
}

// --- into 16 bits -----------------------------------------------------------------------------------------------

// What an element that was widened has to be multiplied by, beside its scale.
template <typename T>
constexpr float WIDE_UNIT = 1.0f;
#if CACHE_KIND == 2
template <>
constexpr float WIDE_UNIT<__half> = 256.0f;  // the exponent stays as it is, and that of a half is 8 ahead
#endif

template <typename Pair>
__device__ __forceinline__ Pair as_pair(uint32 bits) {
  return *reinterpret_cast<const Pair*>(&bits);
}
template <typename Pair>
__device__ __forceinline__ uint32 as_word(Pair pair) {
  return *reinterpret_cast<const uint32*>(&pair);
}

// Bytes 0 and 2 of four as a pair of 16-bit elements; those in places 1 and 3 may be anything.
template <typename T>
__device__ __forceinline__ uint32 widen(uint32 bytes);

#if CACHE_KIND == 1
// 1024 + 128 + x, less 1152: halves from 1024 on are one apart.
template <>
__device__ __forceinline__ uint32 widen<__half>(uint32 bytes) {
  const uint32 raised = (bytes & 0x00ff00ffu) ^ 0x64806480u;
  return as_word(__hsub2(as_pair<__half2>(raised), as_pair<__half2>(0x64806480u)));
}
// 128 and the lower seven bits, less 128, or 256 below zero: bfloat16s from 128 on are one apart.
template <>
__device__ __forceinline__ uint32 widen<__nv_bfloat16>(uint32 bytes) {
  const uint32 raised = (bytes & 0x007f007fu) | 0x43004300u, less = (bytes & 0x00800080u) | 0x43004300u;
  return as_word(__hsub2(as_pair<__nv_bfloat162>(raised), as_pair<__nv_bfloat162>(less)));
}
#else
template <>
__device__ __forceinline__ uint32 widen<__half>(uint32 bytes) {
  return (bytes << 8 & 0x80008000u) | (bytes << 7 & 0x3f803f80u);
}
// The exponent of a bfloat16 is 120 ahead; the product is exact, of subnormal numbers too.
template <>
__device__ __forceinline__ uint32 widen<__nv_bfloat16>(uint32 bytes) {
  const uint32 small = (bytes << 8 & 0x80008000u) | (bytes << 4 & 0x07f007f0u);
  return as_word(__hmul2(as_pair<__nv_bfloat162>(small), as_pair<__nv_bfloat162>(0x7b807b80u)));
}
#endif

// Four bytes as two pairs: those in places 0 and 2, and those in places 1 and 3.
template <typename T>
__device__ __forceinline__ void widen_four(uint32 bytes, uint32& even, uint32& odd) {
  even = widen<T>(bytes);
  odd = widen<T>(bytes >> 8);
}

// Whether an instruction makes pairs of e4m3, of neighbours, which need no WIDE_UNIT, and of no number a NaN.
template <typename T>
constexpr bool CONVERTS = false;
#if CACHE_KIND == 2 && __CUDA_ARCH__ >= 890
template <>
constexpr bool CONVERTS<__half> = true;
#endif

// Four bytes as two pairs, so that they are quickly made: of neighbours with CONVERTS, or as `widen_four`.
template <typename T>
__device__ __forceinline__ void as_pairs(uint32 bytes, uint32& first, uint32& second) {
  if constexpr (CONVERTS<T>) {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
        : "=r"(first), "=r"(second)
        : "r"(bytes));
  } else {
    widen_four<T>(bytes, first, second);
  }
}
template <typename T>
constexpr float PAIRS_UNIT = CONVERTS<T> ? 1.0f : WIDE_UNIT<T>;

#endif
