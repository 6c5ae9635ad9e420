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
