// Inputs of weights that are integers, as integers: tensor cores multiply both as they are, and no weight has to
// become a float. Included by layer_memory.cuh.
//
// An element is a whole number below 2^14, to the nearest, times a power of two that its run has in common: where
// one element of a run is large, the others lose what is small beside it, and beside the sum. The number has two
// digits of base 256, from -128 to 127. Sums of a run are exact.

#pragma once

#include "common/mma_integers.cuh"

// What a step of a run's digits is worth. Of 4 bits, where weights of the lower halves of bytes are 8 too large and
// sums are 16 times as large: what those have too much, and the sum of the run's elements.
struct alignas(16) DigitWorth {
  float unit = 0.0f;
  int excess = 0;
  float sum = 0.0f;
};

constexpr int NUMBER_BITS = 14;

// The larger one of each pair of halves, as whole numbers.
__device__ __forceinline__ uint32 larger_halves(uint32 a, uint32 b) {
  uint32 to;
  asm("max.u16x2 %0, %1, %2;" : "=r"(to) : "r"(a), "r"(b));
  return to;
}

// The magnitude of the largest of some elements, or no number if one of them is none.
struct Largest {
  uint32 halves = 0;

  __device__ __forceinline__ void add(uint4 piece) {
    constexpr uint32 MAGNITUDES = 0x7fff7fffu;
    halves = larger_halves(halves, piece.x & MAGNITUDES);
    halves = larger_halves(halves, piece.y & MAGNITUDES);
    halves = larger_halves(halves, piece.z & MAGNITUDES);
    halves = larger_halves(halves, piece.w & MAGNITUDES);
  }
  // Of lanes that differ in the bits of the steps from FROM to 1.
  template <int FROM>
  __device__ __forceinline__ float of_lanes() {
#pragma unroll
    for (int step = FROM; step >= 1; step /= 2) {
      halves = larger_halves(halves, __shfl_xor_sync(FULL_WARP, halves, step));
    }
    float low, high;
    unpack_pair<Element>(halves, low, high);
    // As bits, of which those of what is no number are the largest.
    return __uint_as_float(max(__float_as_uint(low), __float_as_uint(high)));
  }
};

// How elements become numbers, and what those are worth.
struct DigitScale {
  float factor, unit;

  __device__ __forceinline__ DigitScale(float largest) {
    constexpr uint32 BIAS = 127, LOWEST = 32, NO_NUMBER = 255;
    const uint32 exponent = max(__float_as_uint(largest) >> 23, LOWEST);
    factor = __uint_as_float((NUMBER_BITS - 1 + 2 * BIAS - exponent) << 23);
    const uint32 inverse = exponent == NO_NUMBER ? 0x7fffffffu : (exponent - (NUMBER_BITS - 1)) << 23;
    unit = __uint_as_float(inverse);
  }
};

// One digit of each of four numbers, in a word. NOTE: a float of 2^23 and more is a whole number, which its lowest
// bits have; with 128 more the upper digit is the byte above the lower one's.
__device__ __forceinline__ uint32 digits_of(float a, float b, float c, float d, float factor, bool upper) {
  const float whole = upper ? 12582912.0f + 128.0f : 12582912.0f;
  const uint32 bytes = upper ? 0x51u : 0x40u;
  const auto bits = [=](float x) { return __float_as_uint(x * factor + whole); };
  return __byte_perm(__byte_perm(bits(a), bits(b), bytes), __byte_perm(bits(c), bits(d), bytes), 0x5410);
}

// Of a piece, in the order in which weights are multiplied: of 4 bits those of the lower halves of bytes first.
template <int KIND>
__device__ __forceinline__ uint2 digits_of(uint4 piece, float factor, bool upper) {
  float x[PIECE];
  unpack(piece, x);
  if constexpr (KIND == INT4_WEIGHTS) {
    return make_uint2(digits_of(x[0], x[2], x[4], x[6], factor, upper),
                      digits_of(x[1], x[3], x[5], x[7], factor, upper));
  } else {
    return make_uint2(digits_of(x[0], x[1], x[2], x[3], factor, upper),
                      digits_of(x[4], x[5], x[6], x[7], factor, upper));
  }
}

// Both digits: words of the upper ones, then of the lower ones. With 128 more the lower byte is the lower digit's,
// but for its highest bit.
template <int KIND>
__device__ __forceinline__ uint4 both_digits_of(uint4 piece, float factor) {
  float x[PIECE];
  unpack(piece, x);
  uint32 numbers[PIECE], words[4];
#pragma unroll
  for (int i = 0; i < PIECE; i++) numbers[i] = __float_as_uint(x[i] * factor + (12582912.0f + 128.0f));
#pragma unroll
  for (int w = 0; w < 2; w++) {
    constexpr int STEP_OF = KIND == INT4_WEIGHTS ? 2 : 1;
    const uint32* from = numbers + (KIND == INT4_WEIGHTS ? w : 4 * w);
    const uint32 first = __byte_perm(from[0], from[STEP_OF], 0x5410);
    const uint32 second = __byte_perm(from[2 * STEP_OF], from[3 * STEP_OF], 0x5410);
    words[w] = __byte_perm(first, second, 0x7531);
    words[2 + w] = __byte_perm(first, second, 0x6420) ^ 0x80808080u;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Both halves of a unit's rows times a lane's input, by 16 bytes of rows g and g + 8. `of(i)` is as d[i] of
// mma_integers.cuh, of 4 bits 16 times as much.
template <int KIND>
struct DigitProducts;

template <>
struct DigitProducts<INT8_WEIGHTS> {
  int sums[4] = {};

  __device__ __forceinline__ void add(uint4 upper_row, uint4 lower_row, const uint2* digits) {
    mma_16x8x32(sums, make_uint4(upper_row.x, lower_row.x, upper_row.y, lower_row.y), digits[0]);
    mma_16x8x32(sums, make_uint4(upper_row.z, lower_row.z, upper_row.w, lower_row.w), digits[1]);
  }
  __device__ __forceinline__ int of(int i) const { return sums[i]; }
};

template <>
struct DigitProducts<INT4_WEIGHTS> {
  int low[4] = {}, high[4] = {};  // of halves of bytes; the upper ones are 16 times as large, and signed

  __device__ __forceinline__ void add(uint4 upper_row, uint4 lower_row, const uint2* digits) {
    add_pair(upper_row.x, lower_row.x, upper_row.y, lower_row.y, digits);
    add_pair(upper_row.z, lower_row.z, upper_row.w, lower_row.w, digits + 2);
  }
  __device__ __forceinline__ void add_pair(uint32 a, uint32 b, uint32 c, uint32 d, const uint2* digits) {
    mma_16x8x32(low, make_uint4(low_of(a), low_of(b), low_of(c), low_of(d)), make_uint2(digits[0].x, digits[1].x));
    mma_16x8x32(high, make_uint4(high_of(a), high_of(b), high_of(c), high_of(d)),
                make_uint2(digits[0].y, digits[1].y));
  }
  static __device__ __forceinline__ uint32 low_of(uint32 bytes) { return bytes & 0x0f0f0f0fu; }
  static __device__ __forceinline__ uint32 high_of(uint32 bytes) {  // less 8 each
    uint32 to;
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(to) : "r"(bytes), "r"(0xf0f0f0f0u), "r"(0x80808080u));
    return to;
  }
  __device__ __forceinline__ int of(int i) const { return low[i] * 16 + high[i]; }
};

// What digits of run q are worth, whose unit that is; the lane's own run has `digits`.
template <int KIND, int COUNT>
__device__ __forceinline__ DigitWorth worth_of(float unit, const uint2 (&digits)[COUNT]) {
  DigitWorth worth;
  worth.unit = unit;
  if constexpr (KIND == INT4_WEIGHTS) {
    constexpr uint32 ONES = 0x01010101u;
    int even[4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
      const uint4 ones = make_uint4(ONES, ONES, ONES, ONES);
      mma_16x8x32(even, ones, make_uint2(digits[i].x, digits[i + 1].x));
      mma_16x8x32(odd, ones, make_uint2(digits[i].y, digits[i + 1].y));
    }
    const int of_low = even[0] * 256 + even[1];
    worth.excess = 16 * 8 * of_low;
    worth.sum = unit * static_cast<float>(of_low + odd[0] * 256 + odd[1]);
    worth.unit = unit * (1.0f / 16);
  }
  return worth;
}
