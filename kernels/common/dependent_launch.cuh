// Two kernels of one stream that overlap (programmatic dependent launch, sm_90): the second may start before the
// first has ended, and waits where it needs what the first one writes. Nothing happens in a launch without that
// attribute.

#pragma once

// In the first kernel: the next one may be brought in as soon as there is room.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// In the second kernel: until the first has ended and what it wrote is visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#ifndef BESIDE
#define BESIDE 0  // 1: the next launch has the same input and runs beside this one; 2: it is that launch
#endif

// The same where two launches run side by side, on multiprocessors that the first one leaves: it lets the second
// one start when its input is there, so that the second one finds it, and that one waits for the first one at its
// end, so that whoever waits for one waits for both. At the beginning, before the input is read, and at the end:
__device__ __forceinline__ void begin_launch() {
  if (BESIDE != 1) let_next_kernel_start();
}
__device__ __forceinline__ void await_input() {
  if (BESIDE != 2) wait_for_previous_kernel();
  if (BESIDE == 1) let_next_kernel_start();
}
__device__ __forceinline__ void end_launch() {
  if (BESIDE == 2) wait_for_previous_kernel();
}
