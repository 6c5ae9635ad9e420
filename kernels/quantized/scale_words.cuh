// Scales of a weight's groups as a lane keeps them in registers. Which rows' they are is not known here.

#pragma once

#include "products/streamed_ring.cuh"

// Some scales that follow each other, as bits.
template <int COUNT>
struct ScaleWords {
  uint32 words[ceil_div(COUNT, 2)];

  __device__ __forceinline__ void load(const __half* from) {
    if constexpr (COUNT % 4 == 0 && ROW_GROUPS % 4 == 0) {
#pragma unroll
      for (int i = 0; i < COUNT / 4; i++) {
        const uint2 pair = reinterpret_cast<const uint2*>(from)[i];
        words[2 * i] = pair.x, words[2 * i + 1] = pair.y;
      }
    } else if constexpr (COUNT % 2 == 0 && ROW_GROUPS % 2 == 0) {
#pragma unroll
      for (int i = 0; i < COUNT / 2; i++) words[i] = reinterpret_cast<const uint32*>(from)[i];
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i++) {
        const uint32 bits = __half_as_ushort(from[i]);
        words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
      }
    }
  }
  __device__ __forceinline__ float of(int i) const {
    return to_float(__ushort_as_half(static_cast<unsigned short>(words[i / 2] >> 16 * (i % 2))));
  }
  // Something of all of them.
  __device__ __forceinline__ uint32 bits() const {
    uint32 bits = 0;
#pragma unroll
    for (int i = 0; i < ceil_div(COUNT, 2); i++) bits |= words[i];
    return bits;
  }
};
