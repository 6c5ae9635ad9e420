// Tensor-core products of one warp: D += A * B with A 16 x 16, B 16 x 8, D 16 x 8, 16-bit elements, float sums.
//
// Which element a lane holds (PTX ISA, "mma.m16n8k16", g = lane / 4, q = lane % 4, pairs are neighbours in k or n):
//   A  a[0] = (row g,     k 2q, 2q+1)      a[1] = (row g + 8, k 2q, 2q+1)
//      a[2] = (row g,     k 2q+8, 2q+9)    a[3] = (row g + 8, k 2q+8, 2q+9)
//   B  b[0] = (k 2q, 2q+1, column g)       b[1] = (k 2q+8, 2q+9, column g)
//   D  d[0], d[1] = (row g, columns 2q, 2q+1)     d[2], d[3] = (row g + 8, the same)
// Before sm_80 there is only the half as deep float16 product; two of those do the same.

#pragma once

#include "common/common.cuh"

template <typename T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]);

template <>
__device__ __forceinline__ void mma_16x8x16<__half>(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
  for (int half = 0; half < 2; half++) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
#endif
}

#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void mma_16x8x16<__nv_bfloat16>(float (&d)[4], const uint32 (&a)[4],
                                                           const uint32 (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Four 8 x 8 matrices of 16-bit elements from shared memory; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(uint32 (&m)[4], uint32 shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address));
}

// The same the other way (sm_90).
__device__ __forceinline__ void store_matrices(uint32 shared_address, const uint32 (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address), "r"(m[0]),
               "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

__device__ __forceinline__ uint32 shared_address(const void* pointer) {
  return static_cast<uint32>(__cvta_generic_to_shared(pointer));
}
