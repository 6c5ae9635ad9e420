// Weights of few bits as operands of a product, in fewer instructions than weight_kinds.cuh takes: what is left out
// there is put right in the sums.
//
// An OR makes of an integer a float that is too large by a constant, and may be so by a factor. The sum of an input
// times such floats has the constant times the input's own sum too much, and that is known once for all weights.
// The pairs x and z of a piece may have another constant and factor than y and w; they go to different sums anyway.
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

template <typename T>
struct RawWeights;

template <>
struct RawWeights<__half> {
  static constexpr bool SHIFTED = WEIGHT_KIND == INT8_WEIGHTS || WEIGHT_KIND == INT4_WEIGHTS;
  static constexpr float XZ_ZERO = WEIGHT_KIND == INT4_WEIGHTS ? 1032.0f : 1152.0f;  // too much in x and z
  static constexpr float YW_ZERO = WEIGHT_KIND == INT4_WEIGHTS ? 72.0f : 1152.0f;    // and in y and w by YW_FACTOR
  static constexpr float YW_FACTOR = WEIGHT_KIND == INT4_WEIGHTS ? 1.0f / 16 : 1.0f;

  // Two words of 8-bit floats.
  static __device__ __forceinline__ uint4 piece(uint2 stored) {
    uint4 to;
#if WEIGHT_KIND == FP8_WEIGHTS
    of_fp8(to.x, to.y, stored.x);
    of_fp8(to.z, to.w, stored.y);
#else
    of_int8(to.x, to.y, stored.x);
    of_int8(to.z, to.w, stored.y);
#endif
    return to;
  }
  static __device__ __forceinline__ uint4 piece(uint32 stored) {
    constexpr uint32 LOW = 0x000f000f, HIGH = 0x00f000f0, ABOVE = 0x64006400;
    const uint32 next = stored >> 8;
    return make_uint4(masked_with(stored, LOW, ABOVE), masked_with(stored, HIGH, ABOVE),
                      masked_with(next, LOW, ABOVE), masked_with(next, HIGH, ABOVE));
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
template <>
struct RawWeights<__nv_bfloat16> {
  static constexpr bool SHIFTED = WEIGHT_KIND == INT4_WEIGHTS;
  static constexpr float XZ_ZERO = 136.0f, YW_ZERO = 136.0f, YW_FACTOR = 1.0f;

  static __device__ __forceinline__ uint4 piece(uint2 stored) { return as_elements(stored); }
  static __device__ __forceinline__ uint4 piece(uint32 stored) {
    constexpr uint32 LOW = 0x000f000f, ABOVE = 0x43004300;
    return make_uint4(masked_with(stored, LOW, ABOVE), masked_with(stored >> 4, LOW, ABOVE),
                      masked_with(stored >> 8, LOW, ABOVE), masked_with(stored >> 12, LOW, ABOVE));
  }
};
#endif

using Raw = RawWeights<Element>;

// Of a token's inner elements: what products with raw weights have too much, and their sum.
struct InputSums {
  float excess = 0.0f, sum = 0.0f;

  __device__ __forceinline__ InputSums() {}
  // `xz` and `yw` are sums of the elements in these pairs.
  __device__ __forceinline__ InputSums(float xz, float yw)
      : excess(xz * Raw::XZ_ZERO + yw * Raw::YW_ZERO), sum(xz + yw) {}
};

// A sum of products with raw weights, of token g and row 2q + i.
__device__ __forceinline__ float raw_sum(const UnitSums& sums, int i) {
  return Raw::YW_FACTOR == 1.0f ? sums.of(i) : sums.first[i] + sums.second[2 + i] * Raw::YW_FACTOR;
}
