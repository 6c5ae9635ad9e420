// Tensor-core products of a warpgroup (four warps that start at a multiple of four): D += A * B with A 64 x 16,
// B 16 x N, D 64 x N, 16-bit elements, float sums (sm_90a, `wgmma`). They run beside the warps that ask for them:
//
//   fence_products();            registers written so far may be read by what follows
//   Product<N>::...              any number of them
//   commit_products();           closes a group
//   wait_products<PENDING>();    until at most PENDING groups are under way
//   settle(d);                   only then may D be read
//
// Warp w of the four holds rows 16w to 16w + 15 of A and D as in mma.cuh: d[4j + i] is the i-th number of columns
// 8j to 8j + 7, and A from registers is mma.cuh's `a`. From shared memory, A and B lie as core matrices, 8 rows (of
// A, or columns of B) of 8 neighbours in k, 128 bytes in a row; a descriptor says how far apart they are (PTX ISA,
// "Strides").

#pragma once

#include "common/warpgroup_registers.cuh"
#include "common/common.cuh"

// `along_k`, `across`: bytes to the next core matrix in k, and in rows of A or columns of B.
// With rows of 32, 64 or 128 bytes, 16 to 64 neighbours in k, a core matrix has them at that distance and `along_k`
// is not used: the 16-byte pieces of a row then change places, see `swizzled`.
__device__ __forceinline__ uint64 matrix_descriptor(uint32 shared_address, int along_k, int across,
                                                    int row_bytes = 16) {
  const uint64 mode = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : row_bytes == 32 ? 3 : 0;
  return static_cast<uint64>((shared_address & 0x3ffff) >> 4) | static_cast<uint64>(along_k >> 4) << 16 |
         static_cast<uint64>(across >> 4) << 32 | mode << 62;
}

// Where a 16-byte piece goes that would be `offset` bytes into a matrix with such rows. Matrices are aligned to 8
// rows.
__device__ __forceinline__ int swizzled(int offset, int row_bytes) {
  return offset ^ (offset >> 3 & row_bytes - 16);
}

// The same matrix, `bytes` further on. The address never carries into the upper half, and the compiler need not
// fear it.
__device__ __forceinline__ uint64 moved(uint64 descriptor, int bytes) {
  return descriptor >> 32 << 32 | static_cast<uint32>(static_cast<uint32>(descriptor) + (bytes >> 4));
}

__device__ __forceinline__ void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving a use of D across this point.
template <int COUNT>
__device__ __forceinline__ void settle(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// A wait that follows stays behind the arithmetic that led to `x` >= 0. The compiler is free to move a wait up to
// the last one, over work that was meant to run beside the products; it does not move it over a branch.
__device__ __forceinline__ void hold_waits(float x) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.lt.f32 p, %0, 0f00000000;\n"
      "vote.sync.any.pred p, p, 0xffffffff;\n"
      "@p trap;\n"
      "}\n" ::"f"(x));
}

// What ordinary copies and stores have put into shared memory becomes visible to the products.
__device__ __forceinline__ void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- the instruction, one specialisation for each N
// -----------------------------------------------------------------

#define WGMMA_TYPE_float16 "f16"
#define WGMMA_TYPE_bfloat16 "bf16"
#define WGMMA_TYPE_OF(element) WGMMA_TYPE_##element
#define WGMMA_TYPE(element) WGMMA_TYPE_OF(element)

template <int N>
struct Product;

// Where d[0] to d[COUNT - 1] stand in the text of the instruction, and what stands there.
#define WGMMA_D8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define WGMMA_D16 WGMMA_D8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_D24 WGMMA_D16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define WGMMA_D32 WGMMA_D24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_D40 WGMMA_D32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WGMMA_D48 WGMMA_D40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WGMMA_D56 WGMMA_D48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define WGMMA_D64 WGMMA_D56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_D72 WGMMA_D64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define WGMMA_D80 WGMMA_D72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define WGMMA_D88 WGMMA_D80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define WGMMA_D96 WGMMA_D88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_D104 WGMMA_D96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define WGMMA_D112 WGMMA_D104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define WGMMA_D120 WGMMA_D112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define WGMMA_D128 WGMMA_D120 ",%120,%121,%122,%123,%124,%125,%126,%127"

#define WGMMA_EIGHT(i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define WGMMA_F8 WGMMA_EIGHT(0)
#define WGMMA_F16 WGMMA_EIGHT(0), WGMMA_EIGHT(8)
#define WGMMA_F24 WGMMA_F16, WGMMA_EIGHT(16)
#define WGMMA_F32 WGMMA_F24, WGMMA_EIGHT(24)
#define WGMMA_F40 WGMMA_F32, WGMMA_EIGHT(32)
#define WGMMA_F48 WGMMA_F40, WGMMA_EIGHT(40)
#define WGMMA_F56 WGMMA_F48, WGMMA_EIGHT(48)
#define WGMMA_F64 WGMMA_F56, WGMMA_EIGHT(56)
#define WGMMA_F72 WGMMA_F64, WGMMA_EIGHT(64)
#define WGMMA_F80 WGMMA_F72, WGMMA_EIGHT(72)
#define WGMMA_F88 WGMMA_F80, WGMMA_EIGHT(80)
#define WGMMA_F96 WGMMA_F88, WGMMA_EIGHT(88)
#define WGMMA_F104 WGMMA_F96, WGMMA_EIGHT(96)
#define WGMMA_F112 WGMMA_F104, WGMMA_EIGHT(104)
#define WGMMA_F120 WGMMA_F112, WGMMA_EIGHT(112)
#define WGMMA_F128 WGMMA_F120, WGMMA_EIGHT(120)

// COUNT = N / 2 numbers a thread; I0 to I5 are the numbers after them.
#define WGMMA_PRODUCT(N, COUNT, I0, I1, I2, I3, I4, I5)                                                        \
  template <>                                                                                                  \
  struct Product<N> {                                                                                          \
    static __device__ __forceinline__ void shared_shared(float (&d)[COUNT], uint64 a, uint64 b, bool add) {    \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #I2                                                    \
                   ", 0;\n"                                                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N                                                      \
                   "k16.f32." WGMMA_TYPE(ELEMENT) "." WGMMA_TYPE(ELEMENT) " {" WGMMA_D##COUNT                  \
                   "}, %" #I0 ", %" #I1 ", p, 1, 1, 0, 0;\n}\n"                                                \
                   : WGMMA_F##COUNT                                                                            \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                              \
    }                                                                                                          \
    static __device__ __forceinline__ void registers_shared(float (&d)[COUNT], const uint32 (&a)[4], uint64 b, \
                                                            bool add) {                                        \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #I5                                                    \
                   ", 0;\n"                                                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #N                                                      \
                   "k16.f32." WGMMA_TYPE(ELEMENT) "." WGMMA_TYPE(ELEMENT) " {" WGMMA_D##COUNT                  \
                   "}, {%" #I0 ",%" #I1 ",%" #I2 ",%" #I3 "}, %" #I4 ", p, 1, 1, 0;\n}\n"                      \
                   : WGMMA_F##COUNT                                                                            \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));          \
    }                                                                                                          \
  };

WGMMA_PRODUCT(16, 8, 8, 9, 10, 11, 12, 13)
WGMMA_PRODUCT(32, 16, 16, 17, 18, 19, 20, 21)
WGMMA_PRODUCT(48, 24, 24, 25, 26, 27, 28, 29)
WGMMA_PRODUCT(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA_PRODUCT(80, 40, 40, 41, 42, 43, 44, 45)
WGMMA_PRODUCT(96, 48, 48, 49, 50, 51, 52, 53)
WGMMA_PRODUCT(112, 56, 56, 57, 58, 59, 60, 61)
WGMMA_PRODUCT(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA_PRODUCT(144, 72, 72, 73, 74, 75, 76, 77)
WGMMA_PRODUCT(160, 80, 80, 81, 82, 83, 84, 85)
WGMMA_PRODUCT(176, 88, 88, 89, 90, 91, 92, 93)
WGMMA_PRODUCT(192, 96, 96, 97, 98, 99, 100, 101)
WGMMA_PRODUCT(224, 112, 112, 113, 114, 115, 116, 117)
WGMMA_PRODUCT(256, 128, 128, 129, 130, 131, 132, 133)
