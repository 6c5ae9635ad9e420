// Copies from global to shared memory that run beside the computation (cp.async, sm_80), in groups.
// Before sm_80 the same calls copy at once.

#pragma once

#include "common/common.cuh"

// 16 bytes; zeros where `valid` is false (the address is not read then).
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, bool valid = true) {
#if __CUDA_ARCH__ >= 800
  const uint32 to = static_cast<uint32>(__cvta_generic_to_shared(shared));
  const int size = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(size) : "memory");
#else
  store_16(shared, valid ? load_16(global) : make_uint4(0, 0, 0, 0));
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until at most `PENDING` of the last committed groups are under way. Other threads' copies need a barrier as well.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
