// Bulk copies into shared memory (sm_90): one instruction for a run of bytes, which tells an mbarrier when it has
// landed. They need no registers, and no thread waits for them before their bytes are wanted.

#pragma once

#include "common/mbarrier.cuh"
#include "common/mma.cuh"

// What the thread has written to shared memory and which barriers it has initialised, before copies get there.
__device__ __forceinline__ void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Whether this is the one lane of a whole warp that is to ask for copies.
__device__ __forceinline__ bool is_elected() {
  uint32 elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

// 16 bytes or a multiple, told to `barrier`.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, uint32 bytes, uint32 barrier,
                                          uint64 policy = pass_through_cache()) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
      "%4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// On its way into the L2 cache; a multiple of 16 bytes.
__device__ __forceinline__ void prefetch_bulk(const void* from, uint32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
