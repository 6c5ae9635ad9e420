// The end of a step of persistent_decode.cu: the best token of all thread blocks, and a state that has moved on.

#pragma once

#include "argmax.cuh"
#include "persistent_memory.cuh"

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

__device__ __forceinline__ uint64 await_key(const uint64* place) {
  uint64 key = 0;
  for (int looks = 0; key == 0; looks++) {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(key) : "l"(place) : "memory");
    if (looks == MAX_LOOKS) __trap();
  }
  return key;
}

// The best keys of the thread block are published; one thread block collects those of all others in `shared.best`,
// after a barrier, and gets true. `best_of_all`: two sets of [NUM_BLOCKS, NUM_TOKENS], not there: zero.
__device__ __forceinline__ bool choose(Shared& shared, uint64* best_of_all, bool odd) {
  constexpr int KEYS = NUM_BLOCKS * NUM_TOKENS;
  uint64* const keys = best_of_all + (odd ? KEYS : 0);
  if (threadIdx.x < NUM_TOKENS) {
    const int own = blockIdx.x * NUM_TOKENS + threadIdx.x;
    const uint64 key = max(shared.best[threadIdx.x], 1ull);  // something, even if there were no rows
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(keys + own), "l"(key) : "memory");
    best_of_all[(odd ? 0 : KEYS) + own] = 0;
  }
  if (blockIdx.x != CHOOSER) return false;
  for (int i = threadIdx.x; i < KEYS; i += NUM_THREADS)
    atomicMax(&shared.best[i % NUM_TOKENS], await_key(keys + i));
  sync_warps();
  return true;
}

// What the state's tensors are for the next step.
__device__ __forceinline__ void move_on(const Shared& shared, int* token_ids, int* positions, int* seq_lens,
                                        int* history) {
  const StateBefore& before = shared.before;
  const int token = threadIdx.x;
  if (token >= NUM_TOKENS) return;
  const int next = argmax_row(shared.best[token]);
  history[before.at * NUM_TOKENS + token] = next;
  token_ids[token] = next;
  if (before.positions[token] < 0) return;
  positions[token] = before.positions[token] + 1;
  seq_lens[token] = before.seq_lens[token] + 1;
}
