// The end of a step of persistent_decode.cu: the best token of all thread blocks, and a state that has moved on.

#pragma once

#include "common/argmax.cuh"
#include "whole_step/memory.cuh"

constexpr int CHOOSER = NUM_BLOCKS - 1;  // has as few tiles of the vocabulary as any

// But for `at`, which takes a division.
__device__ __forceinline__ StateBefore read_state(const int* positions, const int* seq_lens, const int* step,
                                                  const int* launches) {
  StateBefore state;
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) state.positions[t] = positions[t], state.seq_lens[t] = seq_lens[t];
  state.launches = *launches, state.step = *step;
  return state;
}

// The largest of FROM * 2 neighbouring lanes; all of them get it.
template <int FROM = 16>
__device__ __forceinline__ uint64 warp_best(uint64 key) {
#pragma unroll
  for (int step = FROM; step > 0; step /= 2) {
    const uint64 other = __shfl_xor_sync(FULL_WARP, key, step);
    key = max(key, other);
  }
  return key;
}

__device__ __forceinline__ uint64 look_at_key(const uint64* place) {
  uint64 key;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(key) : "l"(place) : "memory");
  return key;
}

// The best key of each token of all thread blocks, once they are all there: the work of a warp. `keys`:
// [NUM_BLOCKS, NUM_TOKENS]. A lane has several of them, which it looks at all at once.
__device__ __forceinline__ void await_best(uint64 (&best)[NUM_TOKENS], const uint64* keys) {
  const Place place;
  look_until_there([&] {
    bool all = true;
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) best[t] = 0;
#pragma unroll
    for (int first = 0; first < NUM_BLOCKS; first += WARP_SIZE) {
      const int block = min(first + place.lane, NUM_BLOCKS - 1);
#pragma unroll
      for (int t = 0; t < NUM_TOKENS; t++) {
        const uint64 key = look_at_key(keys + block * NUM_TOKENS + t);
        all = all && key > 0;
        best[t] = max(best[t], key);
      }
    }
    return !all;
  });
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) best[t] = warp_best(best[t]);
}

// What the warps have found is published by the thread block: the work of a warp. `best_of_all`: two sets of
// [NUM_BLOCKS, NUM_TOKENS], not there: zero. Returns the set of this launch.
__device__ __forceinline__ const uint64* publish_best(const Shared& shared, uint64* best_of_all) {
  constexpr int KEYS = NUM_BLOCKS * NUM_TOKENS;
  static_assert(NUM_WARPS <= 16, "half of the lanes have what all warps have found");
  const Place place;
  const bool odd = shared.before.launches & 1;
  uint64* const keys = best_of_all + (odd ? KEYS : 0);
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    const uint64 found = warp_best<8>(shared.best[min(place.lane % 16, NUM_WARPS - 1)][t]);
    const int own = blockIdx.x * NUM_TOKENS + t;
    const uint64 key = max(found, 1ull);  // something, even if there were no rows
    if (place.lane == 0) {
      asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(keys + own), "l"(key) : "memory");
      best_of_all[(odd ? 0 : KEYS) + own] = 0;
    }
  }
  __syncwarp();
  return keys;
}

// What the state's tensors are for the next step. `best`: key of each token.
__device__ __forceinline__ void move_on(const StateBefore& before, const uint64 (&best)[NUM_TOKENS], int* token_ids,
                                        int* positions, int* seq_lens, int* history) {
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    const int next = argmax_row(best[t]);
    history[before.at * NUM_TOKENS + t] = next;
    token_ids[t] = next;
    if (before.positions[t] < 0) continue;
    positions[t] = before.positions[t] + 1;
    seq_lens[t] = before.seq_lens[t] + 1;
  }
}
