// Tensor-core products of one warp in signed 8-bit integers, exact: D += A * B with A 16 x 32, B 32 x 8, D 16 x 8.
//
// Which element a lane holds (PTX ISA, "mma.m16n8k32", g = lane / 4, q = lane % 4, words are four neighbours in k):
//   A  a.x = (row g, k 4q .. 4q+3)           a.y = (row g + 8, k 4q .. 4q+3)
//      a.z = (row g, k 4q+16 .. 4q+19)       a.w = (row g + 8, k 4q+16 .. 4q+19)
//   B  b.x = (k 4q .. 4q+3, column g)        b.y = (k 4q+16 .. 4q+19, column g)
//   D  d[0], d[1] = (row g, columns 2q, 2q+1)     d[2], d[3] = (row g + 8, the same)

#pragma once

#include "common/common.cuh"

__device__ __forceinline__ void mma_16x8x32(int (&d)[4], uint4 a, uint2 b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
