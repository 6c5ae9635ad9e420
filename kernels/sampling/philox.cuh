// Philox4x32-10, a random number generator without state (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3"): a number is a function of a key and a counter, so it is the same in any batch and on any device.

#pragma once

#include "common/common.cuh"

// The first 64 of the 128 bits for a counter. As pagedchat/ops/sampling/philox.py computes them.
__device__ __forceinline__ uint64 philox_64(uint64 key, uint64 counter) {
  uint32 c0 = static_cast<uint32>(counter), c1 = static_cast<uint32>(counter >> 32), c2 = 0, c3 = 0;
  uint32 k0 = static_cast<uint32>(key), k1 = static_cast<uint32>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c2 = high0 ^ c3 ^ k1;
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return static_cast<uint64>(c1) << 32 | c0;
}
