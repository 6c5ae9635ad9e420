// Which bytes stay in the L2 cache longer than others, for accesses that take a policy (sm_80).

#pragma once

#include "common/common.cuh"

// What is read once leaves first.
__device__ __forceinline__ uint64 pass_through_cache() {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// What all thread blocks read, or tell each other, and weights that pass once would push out to the memory.
__device__ __forceinline__ uint64 keep_in_cache() {
  uint64 policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
