// Tensor-core products of a warpgroup in signed 8-bit integers, exact: D += A * B with A 64 x 32, B 32 x N, D 64 x
// N, both in shared memory (sm_90a, `wgmma`). They are fenced, committed and waited for as those of wgmma.cuh, and
// D lies in the threads as it does there; a row of 16, 32, 64 or 128 bytes of A or B has as many neighbours in k.

#pragma once

#include "common/wgmma.cuh"

// As `settle` of wgmma.cuh.
template <int COUNT>
__device__ __forceinline__ void settle(int (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(d[i])::"memory");
}

template <int N>
struct IntegerProduct;

#define WGMMA_EIGHT_INTEGERS(i)                                                                               \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), \
      "+r"(d[i + 7])
#define WGMMA_I8 WGMMA_EIGHT_INTEGERS(0)
#define WGMMA_I16 WGMMA_I8, WGMMA_EIGHT_INTEGERS(8)
#define WGMMA_I32 WGMMA_I16, WGMMA_EIGHT_INTEGERS(16), WGMMA_EIGHT_INTEGERS(24)
#define WGMMA_I64 \
  WGMMA_I32, WGMMA_EIGHT_INTEGERS(32), WGMMA_EIGHT_INTEGERS(40), WGMMA_EIGHT_INTEGERS(48), WGMMA_EIGHT_INTEGERS(56)

// COUNT = N / 2 numbers a thread; I0 to I2 are the numbers after them.
#define WGMMA_INTEGER_PRODUCT(N, COUNT, I0, I1, I2)                                                             \
  template <>                                                                                                   \
  struct IntegerProduct<N> {                                                                                    \
    static __device__ __forceinline__ void add(int (&d)[COUNT], uint64 a, uint64 b, bool adds) {                \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #I2                                                     \
                   ", 0;\n"                                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" WGMMA_D##COUNT "}, %" #I0 ", %" #I1 \
                                                                                           ", p;\n}\n"          \
                   : WGMMA_I##COUNT                                                                             \
                   : "l"(a), "l"(b), "r"(static_cast<int>(adds)));                                              \
    }                                                                                                           \
  };

WGMMA_INTEGER_PRODUCT(16, 8, 8, 9, 10)
WGMMA_INTEGER_PRODUCT(32, 16, 16, 17, 18)
WGMMA_INTEGER_PRODUCT(64, 32, 32, 33, 34)
WGMMA_INTEGER_PRODUCT(128, 64, 64, 65, 66)
