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

#include "sampling/choose_token.cuh"

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
  short* row_counts = of_row.counts_in(counts, vocab_size);
  const Penalties penalties = of_row.penalties(row_counts);
  const int mask_row = mask_rows == nullptr ? -1 : mask_rows[row];
  const uint32* mask = mask_row < 0 ? nullptr : masks + static_cast<int64>(mask_row) * ceil_div(vocab_size, 32);
  const RowSlice slice(logits + row * row_stride, penalties, mask, vocab_size, cluster_warp, CLUSTER * NUM_WARPS);
  const auto write = [&](int token) {
    token_ids[row] = token;
    if (history != nullptr) history[static_cast<int64>((*step - 1) % history_len) * gridDim.y + row] = token;
    if (count_drawn) count_token(row_counts, token);
  };
  choose_token(of_row, slice, philox_64(of_row.seed, static_cast<uint32>(positions[row])), shared, write);
}
