// Sums over parts of the inner dimension, which warpgroups and thread blocks of a cluster have for the same tokens
// and rows of the weight, and how they become whole: those of a thread block in its own shared memory, those of a
// cluster in that of the thread block that finishes the token.

#pragma once

#include "common/cluster.cuh"
#include "products/warpgroup_product.cuh"

constexpr int SUM_STRIDE =
    SUMS + (TOKENS_ARE_64 ? 8 : 4);  // floats; what a warp writes at a time is in different banks
constexpr int PARTS = CLUSTER > 1 ? CLUSTER : WARPGROUPS;  // that are added last
constexpr int PART_ROWS = TOKENS / CLUSTER;                // tokens that a thread block finishes

struct Meeting {
  float sums[CLUSTER][PART_ROWS][SUM_STRIDE];  // from all of the cluster
  uint64 complete;                             // mbarrier
};

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Four neighbouring columns of a row in NUM_PARTS parts, each with NUM_ROWS rows of SUM_STRIDE.
template <int NUM_PARTS, int NUM_ROWS>
__device__ __forceinline__ float4 add_parts(const float* parts, int row, int column) {
  const float* first = parts + row * SUM_STRIDE + column;
  float4 sum = *reinterpret_cast<const float4*>(first);
#pragma unroll
  for (int part = 1; part < NUM_PARTS; part++) {
    sum = sum + *reinterpret_cast<const float4*>(first + part * NUM_ROWS * SUM_STRIDE);
  }
  return sum;
}

// The sums of a warpgroup, to `[TOKENS][SUM_STRIDE]`.
__device__ __forceinline__ void store_sums(float* to, const float (&sums)[OTHER_SIDE / 2]) {
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE % 4;
  const int of_64 = 16 * warp + lane / 4, of_others = lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < OTHER_SIDE / 8; j++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float first = sums[4 * j + 2 * half], second = sums[4 * j + 2 * half + 1];
      const int i = of_64 + 8 * half, k = 8 * j + of_others;
      if (TOKENS_ARE_64) {
        *reinterpret_cast<float2*>(to + i * SUM_STRIDE + k) = make_float2(first, second);
      } else {
        to[k * SUM_STRIDE + i] = first;
        to[(k + 1) * SUM_STRIDE + i] = second;
      }
    }
  }
}

#if CLUSTER > 1
// By one thread, before it announces itself to the cluster.
__device__ __forceinline__ void prepare(Meeting& meeting) {
  init_barrier(barrier_address(meeting.complete), 1);
  publish_barriers();
  expect_bytes(barrier_address(meeting.complete), TOKENS * SUMS * sizeof(float));
}

// `sums`, [WARPGROUPS][TOKENS][SUM_STRIDE], go to where they are finished; returns when all have come here.
__device__ __forceinline__ void meet(Meeting& meeting, const float* sums, int rank) {
  constexpr int OF_ROW = SUMS / 4, ALL = TOKENS * OF_ROW;
#pragma unroll
  for (int j = 0; j < ceil_div(ALL, NUM_THREADS); j++) {
    const int index = threadIdx.x + j * NUM_THREADS;
    if (ALL % NUM_THREADS != 0 && index >= ALL) break;
    const int row = index / OF_ROW, column = index % OF_ROW * 4;
    float* there = &meeting.sums[rank][row % PART_ROWS][column];
    send_to(reinterpret_cast<float4*>(there), &meeting.complete, row / PART_ROWS,
            add_parts<WARPGROUPS, TOKENS>(sums, row, column));
  }
  wait(barrier_address(meeting.complete), 0);
}
#endif
