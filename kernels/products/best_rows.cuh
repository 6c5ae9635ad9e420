// The end of a decode step and the beginning of the next one, without the host: thread blocks offer the best rows
// of the vocabulary that they have seen, and the last of them makes those the next tokens and moves the sequences
// on by one position.

#pragma once

#include "common/argmax.cuh"

struct NextTokens {
  int* token_ids;    // [num_tokens]: the next tokens
  int* positions;    // [num_tokens]: moved on, where not below 0
  int* seq_lens;     // [num_tokens]: moved on, likewise
  int* history;      // [history_len, num_tokens]: the tokens of the last steps
  int* step;         // [1]: moved on; says where in the history
  uint64* best;      // [num_tokens], zero before and after
  uint32* arrivals;  // [1], zero before and after
  int num_tokens, history_len;
};

template <int MOST_TOKENS>
struct BestShared {
  uint64 best[MOST_TOKENS];  // zero before the first offer
  bool is_last;
};

// By `num_threads` threads of each thread block, which `sync` synchronises, when their offers are in `shared`.
template <int MOST_TOKENS, typename Sync>
__device__ __forceinline__ void take_next_tokens(const NextTokens& next, BestShared<MOST_TOKENS>& shared,
                                                 int num_threads, Sync sync) {
  sync();
  if (threadIdx.x < next.num_tokens) atomicMax(next.best + threadIdx.x, shared.best[threadIdx.x]);
  __threadfence();
  sync();
  if (threadIdx.x == 0) shared.is_last = atomicInc(next.arrivals, gridDim.x - 1) == gridDim.x - 1;
  sync();
  if (!shared.is_last) return;
  __threadfence();
  const int at = *next.step % next.history_len;
  sync();
  if (threadIdx.x == 0) *next.step += 1;
  for (int token = threadIdx.x; token < next.num_tokens; token += num_threads) {
    const int taken = argmax_row(atomicExch(next.best + token, 0ull));
    next.history[at * next.num_tokens + token] = taken;
    next.token_ids[token] = taken;
    if (next.positions[token] >= 0) {
      next.positions[token] += 1;
      next.seq_lens[token] += 1;
    }
  }
}
