// Registers that change hands while a kernel runs (sm_90): those whose threads need few give theirs to others.

#pragma once

// Registers of a warpgroup's threads beyond or below what the kernel started with (multiples of 8).
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
