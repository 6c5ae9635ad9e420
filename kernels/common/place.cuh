// Where a lane stands among the threads of its thread block, for kernels that loop over layers.

#pragma once

#include "common/common.cuh"

// NOTE: read anew each time. A compiler that knows the thread's number to be the same in every
// layer works out all addresses before the first one, and holds them in registers that the weights need. But it has
// to know that there are none below 0, or every quotient takes four instructions.
struct Place {
  int thread, lane, warp, g, q;  // g, q as in mma.cuh

  __device__ __forceinline__ Place() {
    uint32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    thread = number & 1023u;
    lane = thread % WARP_SIZE, warp = thread / WARP_SIZE;
    g = lane / 4, q = lane % 4;
  }
};
