// Weights of few bits as operands of a product, in fewer instructions than weight_kinds.cuh takes: what is left out
// there is put right in the sums.
//
// An OR makes of an integer a float that is too large by a constant. The sum of an input times such floats has the
// constant times the input's own sum too much, and that is known once for all weights. The pairs x and z of a piece
// may have another constant than y and w.
// Sums begin anew in each stage and group, so that the constant takes no bits that count: a float holds the sum of
// 128 inputs times 1,152 to some 2^-14 of the sum that is wanted.

#pragma once

#include "common/unit_sums.cuh"
#include "quantized/weight_kinds.cuh"

// Bits of a mask, and others. NOTE: in one instruction, of which the compiler makes two where it knows both
// constants.
__device__ __forceinline__ uint32 masked_with(uint32 word, uint32 mask, uint32 others) {
  uint32 to;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(to) : "r"(word), "r"(mask), "r"(others));
  return to;
}

template <typename T, int KIND>
struct RawWeights;

template <int KIND>
struct RawWeights<__half, KIND> {
  static constexpr bool SHIFTED = KIND == INT8_WEIGHTS || KIND == INT4_WEIGHTS;
  static constexpr float XZ_ZERO = KIND == INT4_WEIGHTS ? 1032.0f : 1152.0f;  // too much in x and z
  static constexpr float YW_ZERO = KIND == INT4_WEIGHTS ? 72.0f : 1152.0f;    // and in y and w

  // Two words of 8-bit floats.
  static __device__ __forceinline__ uint4 piece(uint2 stored) {
    uint4 to;
    if constexpr (KIND == FP8_WEIGHTS) {
      of_fp8(to.x, to.y, stored.x);
      of_fp8(to.z, to.w, stored.y);
    } else {
      of_int8(to.x, to.y, stored.x);
      of_int8(to.z, to.w, stored.y);
    }
    return to;
  }
  // A float16 from 64 to 128 has its last whole bit four bits further up than one from 1,024 on.
  static __device__ __forceinline__ uint4 piece(uint32 stored) {
    constexpr uint32 LOW = 0x000f000f, HIGH = 0x00f000f0, ABOVE_LOW = 0x64006400, ABOVE_HIGH = 0x54005400;
    const uint32 next = stored >> 8;
    return make_uint4(masked_with(stored, LOW, ABOVE_LOW), masked_with(stored, HIGH, ABOVE_HIGH),
                      masked_with(next, LOW, ABOVE_LOW), masked_with(next, HIGH, ABOVE_HIGH));
  }

  static __device__ __forceinline__ void of_int8(uint32& first, uint32& second, uint32 word) {
    word ^= 0x80808080;
    first = __byte_perm(word, 0x64646464, 0x4140);
    second = __byte_perm(word, 0x64646464, 0x4342);
  }
  static __device__ __forceinline__ void of_fp8(uint32& first, uint32& second, uint32 word) {
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
        : "=r"(first), "=r"(second)
        : "r"(word));
  }
};

#if __CUDA_ARCH__ >= 800
// Its 8 bits have no room for a constant besides 8 bits of an integer.
template <int KIND>
struct RawWeights<__nv_bfloat16, KIND> {
  static constexpr bool SHIFTED = KIND == INT4_WEIGHTS;
  static constexpr float XZ_ZERO = 136.0f, YW_ZERO = 136.0f;

  static __device__ __forceinline__ uint4 piece(uint2 stored) { return as_elements<KIND>(stored); }
  static __device__ __forceinline__ uint4 piece(uint32 stored) {
    constexpr uint32 LOW = 0x000f000f, ABOVE = 0x43004300;
    return make_uint4(masked_with(stored, LOW, ABOVE), masked_with(stored >> 4, LOW, ABOVE),
                      masked_with(stored >> 8, LOW, ABOVE), masked_with(stored >> 12, LOW, ABOVE));
  }
};
#endif

using Raw = RawWeights<Element, WEIGHT_KIND>;

// Of a token's inner elements: what products with raw weights have too much, and their sum.
struct InputSums {
  float excess = 0.0f, sum = 0.0f;

  __device__ __forceinline__ InputSums() {}
  // `xz` and `yw` are sums of the elements in these pairs.
  __device__ __forceinline__ InputSums(float xz, float yw)
      : excess(xz * Raw::XZ_ZERO + yw * Raw::YW_ZERO), sum(xz + yw) {}
};
