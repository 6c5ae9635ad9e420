// The next token of one row of logits, by CLUSTER thread blocks: min-p, top-k, top-p, one draw. Sampling of whole
// rows (sample.cu) and of lists of few tokens (sample_listed.cu) is the same from here on.

#pragma once

#include "common/argmax.cuh"
#include "sampling/philox.cuh"
#include "sampling/row_params.cuh"
#include "sampling/token_draw.cuh"

struct SampleShared {
  uint64 best[NUM_WARPS];
  FilterShared filter;
  DrawShared draw;
};

__device__ __forceinline__ uint64 max_of_warp(uint64 x) {
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) x = max(x, __shfl_xor_sync(FULL_WARP, x, step));
  return x;
}

// The largest logit and its token, as `argmax_key`, of the whole row; all threads get it.
__device__ __forceinline__ uint64 best_of_row(const RowSlice& slice, SampleShared& shared) {
  float best = NEGATIVE_INFINITY;
  int token = 0;
  slice.for_each([&](int first, const float (&logits)[PIECE]) {
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
      if (logits[j] > best) best = logits[j], token = first + j;
    }
  });
  const uint64 key = max_of_warp(argmax_key(__fadd_rn(best, 0.0f), token));  // of both zeros the positive one
  if (threadIdx.x % WARP_SIZE == 0) shared.best[threadIdx.x / WARP_SIZE] = key;
  sync_cluster();
  uint64 found = 0;
  for (int i = threadIdx.x % WARP_SIZE; i < CLUSTER * NUM_WARPS; i += WARP_SIZE) {
    found = max(found, load_from(&shared.best[i % NUM_WARPS], i / NUM_WARPS));
  }
  return max_of_warp(found);
}

// Min-p, then top-k, then top-p within what is left.
__device__ __forceinline__ Kept filter_row(const RowParams& params, const RowSlice& slice, const TokenKeys& keys,
                                           FilterShared& shared) {
  Kept kept{params.min_key > 0 ? params.min_key - 1 : 0, 0};
  int turn = 0;
#pragma unroll 1
  for (int by_mass = 0; by_mass < 2; by_mass++) {
    if (by_mass ? params.top_p == 1.0f : params.top_k == 0) continue;
    const uint64 tie_mass = static_cast<uint64>(kept.ties) * weight_of(kept.key);
    const Selection selection{shared, slice, keys, by_mass == 1};
    kept = selection.narrow(kept, turn, [&](uint64 total) -> uint64 {
      if (!by_mass) return params.top_k;
      const double mass = static_cast<double>(total + tie_mass);
      return max(1ull, static_cast<uint64>(ceil(__dmul_rn(static_cast<double>(params.top_p), mass))));
    });
  }
  return kept;
}

// The token of a row of logits: the most likely one, or one draw from what the filters leave. All threads of the
// cluster call it; one calls `write(token)`, or none where there is nothing to draw and no row.
template <typename Write>
__device__ __forceinline__ void choose_token(const RowParams& of_row, const RowSlice& slice, uint64 random,
                                             SampleShared& shared, Write write) {
  const int warp = threadIdx.x / WARP_SIZE, cluster_warp = blockIdx.x * NUM_WARPS + warp;
  clear(shared.filter.histograms[0]);
  const uint64 best = best_of_row(slice, shared);
  if (of_row.scale == 0.0f) {
    sync_cluster();  // nobody reads this thread block's shared memory any more, nor the counts
    if (cluster_warp == 0 && threadIdx.x == 0) write(argmax_row(best));
    return;
  }
  const TokenKeys keys{argmax_value(best), of_row.scale};
  const Kept kept = filter_row(of_row, slice, keys, shared.filter);

  add_up_slice(slice, keys, kept, shared.draw);
  sync_cluster();
  if (warp == 0) choose_warp(shared.draw, kept, random);
  __syncthreads();
  arrive_at_cluster();
  if (shared.draw.chosen_warp < 0 && cluster_warp == 0 && threadIdx.x == 0) write(argmax_row(best));
  if (shared.draw.chosen_warp == cluster_warp) {
    search_slice(slice, keys, kept, shared.draw, write);
  }
  wait_for_cluster();  // nobody reads this thread block's shared memory any more
}
