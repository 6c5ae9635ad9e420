// The next token of each row of logits: penalties, temperature, min-p, top-k, top-p, then one draw. A row with a
// mask takes no token but those that it allows: the others have logits of minus infinity from the start.
//
//   P[token] = softmax(penalised logits / temperature) over the tokens that the filters leave
//   token    = first one in the order of the vocabulary whose cumulative P is above u,  u from (seed, position)
//
// Probabilities are whole numbers (token_weight.cuh), so their sums are exact: the token is the same however a row
// is spread over threads, and the same as the torch version's. Nothing is sorted: filters are thresholds found by
// radix selection (token_filter.cuh), and the draw goes by sums over warps first, then over one warp's part of the
// row.
//
// A row is read a few times, the first time from memory, then from the caches. With CLUSTER above 1 as many thread
// blocks share a row, for batches too small to fill the GPU.
//
// The draw: inverse transform with Philox4x32-10 (philox.cuh). The filters without a sort: as in FlashInfer's
// sampling kernels, which reject instead of selecting. Top-k: Fan et al. 2018; top-p: Holtzman et al. 2019; min-p:
// Nguyen et al. 2024; repetition penalty: Keskar et al. 2019.

#include "common/argmax.cuh"
#include "sampling/philox.cuh"
#include "sampling/token_draw.cuh"

// As pagedchat/ops/sampling/sample_rows.py packs it.
struct RowParams {
  float scale;  // log2(e) / temperature; 0: the most likely token
  int top_k;    // 0: no limit; below 0: the token that is there stays
  float top_p;  // 1: no limit
  uint32 min_key;
  float repetition_penalty, reciprocal_penalty, presence_penalty, frequency_penalty;
  int64 counts_row;  // below 0: no penalties
  uint64 seed;
};

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

// Grid: (CLUSTER, num_rows), NUM_THREADS threads
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS, 1024 / NUM_THREADS)
    sample(int* __restrict__ token_ids,           // [num_rows]
           const Element* __restrict__ logits,    // [num_rows, vocab_size], strided
           const RowParams* __restrict__ params,  // [num_rows]
           const int* __restrict__ positions,     // [num_rows]: of the tokens to be drawn, in their sequences
           short* counts,                         // [., vocab_size], see Penalties; or null
           const int* __restrict__ mask_rows,     // [num_rows]: which mask a row has, below 0: none; or null
           const uint32* __restrict__ masks,      // [., ceil(vocab_size / 32)], see RowSlice; or null
           int* __restrict__ history,             // [history_len, num_rows]: written too; or null
           const int* __restrict__ step,          // [1]: that of the tokens, plus one; with a history
           int vocab_size, int64 row_stride, int count_drawn, int history_len) {
  __shared__ SampleShared shared;
  const int row = blockIdx.y, warp = threadIdx.x / WARP_SIZE, cluster_warp = blockIdx.x * NUM_WARPS + warp;
  const RowParams of_row = params[row];
  if (of_row.top_k < 0) return;
  short* row_counts =
      counts == nullptr || of_row.counts_row < 0 ? nullptr : counts + of_row.counts_row * vocab_size;
  const Penalties penalties{of_row.repetition_penalty, of_row.reciprocal_penalty, of_row.presence_penalty,
                            of_row.frequency_penalty, row_counts};
  const int mask_row = mask_rows == nullptr ? -1 : mask_rows[row];
  const uint32* mask = mask_row < 0 ? nullptr : masks + static_cast<int64>(mask_row) * ceil_div(vocab_size, 32);
  const RowSlice slice(logits + row * row_stride, penalties, mask, vocab_size, cluster_warp, CLUSTER * NUM_WARPS);
  const auto write = [&](int token) {
    token_ids[row] = token;
    if (history != nullptr) history[static_cast<int64>((*step - 1) % history_len) * gridDim.y + row] = token;
    if (count_drawn && row_counts != nullptr && (row_counts[token] & 0x7fff) < 0x7fff) row_counts[token] += 1;
  };

  const uint64 random = philox_64(of_row.seed, static_cast<uint32>(positions[row]));
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
