// How a ring of weights in shared memory is filled, by the lane that copies.
//
// No more slots are under way than the memory needs, and they are asked for at a pace: what else the ring has is
// for weights that wait for their input, and bytes that are asked for all at once are in the way of numbers that
// thread blocks wait for.

#pragma once

#include "all_layers/layer_memory.cuh"

// How far the copying lane is.
struct Filling {
  Ring<SLOTS> at, coming;
  int filled = 0;
#if PACE
  long long next = 0;
#endif

  // The place for the next slot, once it is free.
  __device__ __forceinline__ void make_room(Shared& shared) {
    if (filled >= SLOTS) wait(shared_address(&shared.read[at.stage]), at.parity ^ 1);
    if (IN_FLIGHT < SLOTS && filled >= IN_FLIGHT) {
      wait(shared_address(&shared.filled[coming.stage]), coming.parity);
      coming.advance();
    }
#if PACE
    while (clock64() < next) __nanosleep(20);
    next = clock64() + PACE;
#endif
  }
  __device__ __forceinline__ void advance() {
    at.advance();
    filled++;
  }
};
