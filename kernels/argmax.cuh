// The largest value of a row and where it is, as one number that can be compared and exchanged atomically.

#pragma once

#include "common.cuh"

// Larger keys are larger values; of equal values the first row wins. Above 0 for every value.
__device__ __forceinline__ uint64 argmax_key(float value, int row) {
  const uint32 bits = __float_as_uint(value);
  const uint32 ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64>(ordered) << 32 | (0xffffffffu - static_cast<uint32>(row));
}

__device__ __forceinline__ int argmax_row(uint64 key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32>(key));
}
