// One draw from the tokens that a filter leaves, in the order of the vocabulary: sums of the warps' parts of the
// row, then the warp in whose part the random number falls, then the token.

#pragma once

#include "sampling/token_filter.cuh"

struct DrawShared {
  uint64 mass[NUM_WARPS], ties[NUM_WARPS];  // above the threshold; tokens that are on it
  int chosen_warp;                          // of the cluster; -1: there is no token to draw
  uint64 target, ties_left;                 // what the chosen warp is to find in its part
};

__device__ __forceinline__ uint64 sum_of_warp(uint64 x) {
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL_WARP, x, step);
  return x;
}

// First step: every warp adds up its part.
__device__ __forceinline__ void add_up_slice(const RowSlice& slice, const TokenKeys& keys, const Kept& kept,
                                             DrawShared& shared) {
  uint64 mass = 0;
  uint32 ties = 0;
  slice.for_each([&](int, const float (&logits)[PIECE]) {
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
      const uint32 key = keys.of(logits[j]);
      mass += weight_of(key > kept.key ? key : 0);  // without a branch, so that eight go side by side
      if (kept.ties > 0) ties += key == kept.key;
    }
  });
  mass = sum_of_warp(mass);
  const uint64 warp_ties = sum_of_warp(ties);
  if (threadIdx.x % WARP_SIZE == 0) {
    shared.mass[threadIdx.x / WARP_SIZE] = mass;
    shared.ties[threadIdx.x / WARP_SIZE] = warp_ties;
  }
}

// Ties that stay of those from `before` on.
__device__ __forceinline__ uint64 ties_kept(uint64 limit, uint64 before, uint64 ties) {
  return before >= limit ? 0 : min(ties, limit - before);
}

// Second step: which warp of the cluster has the token, and what is left to find there. One warp calls it.
__device__ __forceinline__ void choose_warp(DrawShared& shared, const Kept& kept, uint64 random) {
  constexpr int TOTAL = CLUSTER * NUM_WARPS, EACH = ceil_div(TOTAL, WARP_SIZE);
  const int lane = threadIdx.x % WARP_SIZE;
  uint64 mass[EACH], ties[EACH], own_ties = 0, own_mass = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int warp = lane * EACH + i;
    mass[i] = warp < TOTAL ? load_from(&shared.mass[warp % NUM_WARPS], warp / NUM_WARPS) : 0;
    ties[i] = warp < TOTAL ? load_from(&shared.ties[warp % NUM_WARPS], warp / NUM_WARPS) : 0;
    own_ties += ties[i];
  }
  uint64 ties_before = scan_warp(own_ties) - own_ties, before = ties_before;
  const uint64 weight = weight_of(kept.key);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    mass[i] += weight * ties_kept(kept.ties, before, ties[i]);
    before += ties[i];
    own_mass += mass[i];
  }
  const uint64 through = scan_warp(own_mass);
  const uint64 total = __shfl_sync(FULL_WARP, through, WARP_SIZE - 1);
  const uint64 target = __umul64hi(random, total);
  if (lane == 0 && total == 0) shared.chosen_warp = -1;
  uint64 below = through - own_mass;
  if (target < below || target >= through) return;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    if (target >= below && target - below < mass[i]) {
      shared.chosen_warp = lane * EACH + i;
      shared.target = target - below;
      shared.ties_left = ties_before >= kept.ties ? 0 : kept.ties - ties_before;
    }
    below += mass[i];
    ties_before += ties[i];
  }
}

// Third step: the token in this warp's part whose cumulative weight is above the target; the lane that
// has it calls `found(token)`.
template <typename Found>
__device__ __forceinline__ void search_slice(const RowSlice& slice, const TokenKeys& keys, const Kept& kept,
                                             const DrawShared& shared, Found found) {
  uint64 target = shared.target, ties_left = shared.ties_left;
  const int lane = threadIdx.x % WARP_SIZE;
  const uint32 tie_weight = weight_of(kept.key);
  for (int start = slice.begin; start < slice.end; start += WARP_SIZE) {
    const int piece = min(start + lane, slice.end - 1);
    float logits[PIECE];
    slice.convert(slice.fetch(piece), piece, logits);
    uint32 weights[PIECE], tied = 0;
    uint64 ties = 0, mass = 0;
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
      const uint32 key = start + lane < slice.end ? keys.of(logits[j]) : 0;
      const bool is_tied = key == kept.key;
      tied |= static_cast<uint32>(is_tied) << j;
      ties += is_tied;
      weights[j] = weight_of(key > kept.key ? key : 0);
    }
    const uint64 ties_through = scan_warp(ties);
    uint64 ties_before = ties_through - ties;
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
      if (tied >> j & 1) weights[j] = ties_before++ < ties_left ? tie_weight : 0;
      mass += weights[j];
    }
    const uint64 through = scan_warp(mass), total = __shfl_sync(FULL_WARP, through, WARP_SIZE - 1);
    if (target < total) {
      uint64 below = through - mass;
      if (target < below || target >= through) return;
#pragma unroll
      for (int j = 0; j < PIECE; j++) {
        if (target >= below && target - below < weights[j]) found(slice.first_token(piece) + j);
        below += weights[j];
      }
      return;
    }
    target -= total;
    const uint64 step_ties = __shfl_sync(FULL_WARP, ties_through, WARP_SIZE - 1);
    ties_left = ties_left > step_ties ? ties_left - step_ties : 0;
  }
}
