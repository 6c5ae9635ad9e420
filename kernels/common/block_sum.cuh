// Sums over all threads of a thread block.

#pragma once

#include "common/common.cuh"

constexpr int MAX_WARPS = 32;  // of a thread block

// Every thread gets the sum. `of_warp` is shared memory of this sum alone, the number of threads a multiple of 32.
__device__ __forceinline__ float block_sum(float x, float (&of_warp)[MAX_WARPS]) {
  x = warp_sum(x);
  if (threadIdx.x % WARP_SIZE == 0) of_warp[threadIdx.x / WARP_SIZE] = x;
  __syncthreads();
  const int num_warps = blockDim.x / WARP_SIZE;
  return warp_sum(threadIdx.x % WARP_SIZE < num_warps ? of_warp[threadIdx.x % WARP_SIZE] : 0.0f);
}
