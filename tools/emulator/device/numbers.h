// Functions of numbers. What a GPU only approximates is as exact here as the C library.

#pragma once

#include <math.h>

#include "halves.h"

template <typename A, typename B>
inline auto min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
inline auto max(A a, B b) {
  return a < b ? b : a;
}

// --- bits -------------------------------------------------------------------------------------------------------

inline float __uint_as_float(uint32_t x) { return emulator::float_of(x); }
inline float __int_as_float(int x) { return emulator::float_of(static_cast<uint32_t>(x)); }
inline uint32_t __float_as_uint(float x) { return emulator::bits_of(x); }
inline long long __double_as_longlong(double x) {
  long long bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __ffsll(int64_t x) { return __builtin_ffsll(x); }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t nibble = selector >> 4 * i & 15;
    const uint32_t byte = bytes >> 8 * (nibble & 7) & 255;
    chosen |= (nibble < 8 ? byte : byte < 128 ? 0 : 255) << 8 * i;
  }
  return chosen;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<uint32_t>(x)); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint64_t>(a) * b >> 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned __int128>(a) * b >> 64;
}

// --- arithmetic -------------------------------------------------------------------------------------------------

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dmul_rn(double a, double b) { return a * b; }

// To the nearest; what does not fit becomes the nearest that does, NaN 0, as the instruction has it.
inline int __float2int_rn(float x) {
  if (!(x >= -0x1p31f)) return x < 0.0f ? INT32_MIN : 0;
  return x >= 0x1p31f ? INT32_MAX : static_cast<int>(rintf(x));
}
inline uint32_t __float2uint_rn(float x) {
  if (!(x > 0.0f)) return 0;
  return x >= 0x1p32f ? 0xffffffffu : static_cast<uint32_t>(rintf(x));
}
