// 16-bit floating-point numbers: float16 (IEEE binary16) and bfloat16, with the conversions that kernels use.

#pragma once

#include <stdint.h>
#include <string.h>

namespace emulator {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// The exponent is moved into place by a multiplication, which is exact and does subnormal numbers too.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  const float scaled = float_of(rest << 13) * 0x1p112f;
  return float_of(sign | bits_of(scaled));
}

// To the nearest, ties to even: adding a number whose last bit is that of the result rounds as the adder does. All
// that is no number becomes the same one, as the instruction has it.
inline uint16_t float_to_half(float x) {
  const uint16_t sign = bits_of(x) >> 16 & 0x8000u;
  const uint32_t rest = bits_of(x) & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fffu;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more
  const uint32_t exponent = rest >> 23 > 113 ? rest >> 23 : 113;
  const float magic = float_of((exponent + 13) << 23);
  const uint32_t rounded = bits_of(float_of(rest) + magic) - bits_of(magic);
  return sign | static_cast<uint16_t>((exponent - 113) * 1024 + rounded);
}

inline float bfloat_to_float(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bfloat(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

}  // namespace emulator

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __half2float(__half x) { return emulator::half_to_float(x.bits); }
inline float __bfloat162float(__nv_bfloat16 x) { return emulator::bfloat_to_float(x.bits); }
inline __half __float2half_rn(float x) { return {emulator::float_to_half(x)}; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {emulator::float_to_bfloat(x)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

// A float holds every product of two such numbers without rounding, so there is one rounding as in the adder.
inline __half2 __hmul2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y));
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) * __bfloat162float(b.x),
                               __bfloat162float(a.y) * __bfloat162float(b.y));
}

// The same of differences, as of whole numbers below 2048. NOTE: of a sum of three it holds for the numbers that
// kernels have here, none of which needs more than 24 bits before it is rounded.
inline __half2 __hsub2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) - __half2float(b.x), __half2float(a.y) - __half2float(b.y));
}
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) - __bfloat162float(b.x),
                               __bfloat162float(a.y) - __bfloat162float(b.y));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __floats2half2_rn(__half2float(a.x) * __half2float(b.x) + __half2float(c.x),
                           __half2float(a.y) * __half2float(b.y) + __half2float(c.y));
}
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __floats2bfloat162_rn(__bfloat162float(a.x) * __bfloat162float(b.x) + __bfloat162float(c.x),
                               __bfloat162float(a.y) * __bfloat162float(b.y) + __bfloat162float(c.y));
}
