// Rows of 16-bit elements in pieces of 16 bytes, as the products of decode steps take them.

#pragma once

#include "common/mma.cuh"

constexpr int PIECE = 8;  // elements of 16 bytes

// NOTE: volatile, so that the compiler leaves it where it stands. Otherwise it unpacks right after a load that was
// asked for long before its use, and twice as many registers are held until then.
template <typename T>
__device__ __forceinline__ void unpack_pair(uint32 pair, float& low, float& high);
template <>
__device__ __forceinline__ void unpack_pair<__half>(uint32 pair, float& low, float& high) {
  asm volatile("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
               : "=f"(low), "=f"(high)
               : "r"(pair));
}
template <>
__device__ __forceinline__ void unpack_pair<__nv_bfloat16>(uint32 pair, float& low, float& high) {
  asm volatile("shl.b32 %0, %2, 16; and.b32 %1, %2, 0xffff0000;" : "=f"(low), "=f"(high) : "r"(pair));
}

__device__ __forceinline__ void unpack(uint4 piece, float (&values)[PIECE]) {
  unpack_pair<Element>(piece.x, values[0], values[1]);
  unpack_pair<Element>(piece.y, values[2], values[3]);
  unpack_pair<Element>(piece.z, values[4], values[5]);
  unpack_pair<Element>(piece.w, values[6], values[7]);
}

__device__ __forceinline__ uint4 pack(const float (&values)[PIECE]) {
  return make_uint4(pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3]),
                    pack_pair<Element>(values[4], values[5]), pack_pair<Element>(values[6], values[7]));
}

// Element by element. NOTE: what two 16-bit floats come to is exact before it is rounded, so this is what their
// product as floats would be, rounded.
template <typename T>
__device__ __forceinline__ uint32 multiply_pairs(uint32 a, uint32 b);
template <>
__device__ __forceinline__ uint32 multiply_pairs<__half>(uint32 a, uint32 b) {
  const __half2 pair = __hmul2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32*>(&pair);
}
template <>
__device__ __forceinline__ uint32 multiply_pairs<__nv_bfloat16>(uint32 a, uint32 b) {
  const __nv_bfloat162 pair =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32*>(&pair);
}

// 32 inner elements: lane (g, q) of mma.cuh has pieces of rows g and g + 8 of the weights, and one of token g. The
// order of the inner dimension is the lane's own, the same for both operands.
__device__ __forceinline__ void multiply_step(float (&sums)[4], uint4 a, uint4 b, uint4 input) {
  const uint32 low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
  const uint32 low_input[2] = {input.x, input.y}, high_input[2] = {input.z, input.w};
  mma_16x8x16<Element>(sums, low, low_input);
  mma_16x8x16<Element>(sums, high, high_input);
}

// 8 rows and 32 inner elements in one product: `weights` is lane (g, q)'s piece of row g, whose even words multiply
// an even column of the input and whose odd words the odd column after it, `input` being two words of the lane's
// column. The sum of row g and columns 2q, 2q + 1 is sums[0] + sums[3].
__device__ __forceinline__ void multiply_unit(float (&sums)[4], uint4 weights, const uint32 (&input)[2]) {
  const uint32 both[4] = {weights.x, weights.y, weights.z, weights.w};
  mma_16x8x16<Element>(sums, both, input);
}
