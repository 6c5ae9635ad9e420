// The largest value of a row and where it is, as one number that can be compared and exchanged atomically.

#pragma once

#include "common/common.cuh"

// Larger for larger values, above 0 for every value.
__device__ __forceinline__ uint32 ordered_bits(float value) {
  const uint32 bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Larger keys are larger values; of equal values the first row wins. Above 0 for every value.
__device__ __forceinline__ uint64 argmax_key(float value, int row) {
  return static_cast<uint64>(ordered_bits(value)) << 32 | (0xffffffffu - static_cast<uint32>(row));
}

__device__ __forceinline__ int argmax_row(uint64 key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32>(key));
}

__device__ __forceinline__ float argmax_value(uint64 key) {
  const uint32 ordered = static_cast<uint32>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}
