// What every kernel here starts from: the element type, its arithmetic, 16-byte accesses and warp reductions.
//
// Compile-time constants come as -D options: ELEMENT (float16, bfloat16 or float32) in every kernel, and HEAD_SIZE,
// BLOCK_SIZE, GROUP_SIZE where a kernel says so. All entry points are `extern "C"`.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef INPUT_IS_FRESH
#define INPUT_IS_FRESH 0  // 1: the kernel before may still be writing the input when this one starts
#endif

using int8 = signed char;
using int64 = long long;
using uint32 = unsigned int;
using uint64 = unsigned long long;

namespace element {
using float16 = __half;
using bfloat16 = __nv_bfloat16;
using float32 = float;
}  // namespace element

#ifdef ELEMENT
using Element = element::ELEMENT;

// Elements in a 16-byte row of the key cache: `x` of `[num_blocks, num_kv_heads, head_size / x, block_size, x]`.
constexpr int ROW_ELEMENTS = 16 / sizeof(Element);
#endif

constexpr int WARP_SIZE = 32;
constexpr uint32 FULL_WARP = 0xffffffffu;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
#define NEGATIVE_INFINITY __int_as_float(0xff800000)  // NVRTC has no constant expression for it

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

// --- conversions ------------------------------------------------------------------------------------------------

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Two floats as a packed pair of 16-bit elements, `low` in the lower half.
template <typename T>
__device__ __forceinline__ uint32 pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32 pack_pair<__half>(float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<uint32*>(&pair);
}
template <>
__device__ __forceinline__ uint32 pack_pair<__nv_bfloat16>(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32*>(&pair);
}

// --- 16-byte accesses -------------------------------------------------------------------------------------------

// 16 bytes read once, past L1. Stays on its side of a wait for the previous kernel (dependent_launch.cuh), unlike a
// load that is marked as read-only (`ld.global.nc`).
__device__ __forceinline__ uint4 load_in_order(const void* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

// The same from memory that nothing writes while the kernel runs.
__device__ __forceinline__ uint4 load_once(const void* address) {
#if INPUT_IS_FRESH
  return load_in_order(address);
#else
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
#endif
}

__device__ __forceinline__ uint4 load_16(const void* address) { return *static_cast<const uint4*>(address); }
__device__ __forceinline__ void store_16(void* address, uint4 v) { *static_cast<uint4*>(address) = v; }

// --- the L2 cache -----------------------------------------------------------------------------------------------

// What is read once leaves first.
__device__ __forceinline__ uint64 pass_through_cache() {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// What all thread blocks read, or tell each other, and weights that pass once would push out to the memory.
__device__ __forceinline__ uint64 keep_in_cache() {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// --- warp reductions --------------------------------------------------------------------------------------------

// Over lanes that differ in the bits of the mask's steps: `warp_max<16>(x)` over all 32 lanes, all of them get it.
template <int FROM = 16, int TO = 1>
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = FROM; step >= TO; step /= 2) x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, step));
  return x;
}

template <int FROM = 16, int TO = 1>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = FROM; step >= TO; step /= 2) x += __shfl_xor_sync(FULL_WARP, x, step);
  return x;
}

// --- attention scores -------------------------------------------------------------------------------------------

// 2^x; scores are kept in units of log2, so that the softmax needs no multiplication.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
