// The next token of each row that is a list of tokens, in the order of the vocabulary, with their logits: all that
// may be among the most likely ones that the row asks for (screening/list_screened.cu). The same as by sample.cu
// from all logits, but that penalties are in them already, and that nobody has a mask. Rows of no tokens are left
// alone.

#include "common/dependent_launch.cuh"
#include "sampling/few_tokens.cuh"

union ListedShared {
  SampleShared many;
  FewShared few;
};

// Grid: (1, num_rows), NUM_THREADS threads. NOTE: what the kernel before writes is not `__restrict__`: it could be
// asked for before that has ended.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS, 1024 / NUM_THREADS)
    sample_listed(int* token_ids,                        // [num_rows]
                  int* history,                          // [history_len, num_rows]: written too
                  const Element* logits,                 // [num_rows, room]
                  const int* listed_ids,                 // [num_rows, room]: whose they are
                  const int* num_listed,                 // [num_rows]
                  const RowParams* __restrict__ params,  // [num_rows]
                  const int* positions,                  // [num_rows]: of the tokens to be drawn
                  short* counts,                         // [., vocab_size], see Penalties; or null
                  const int* step,                       // [1]: that of the tokens, plus one
                  int room, int vocab_size, int history_len) {
  __shared__ ListedShared shared;
  const int row = blockIdx.y, warp = threadIdx.x / WARP_SIZE, cluster_warp = blockIdx.x * NUM_WARPS + warp;
  const RowParams of_row = params[row];
  wait_for_previous_kernel();
  const int num_logits = num_listed[row];
  if (num_logits == 0 || of_row.top_k < 0) return;
  const int64 first = static_cast<int64>(row) * room;
  const uint64 random = philox_64(of_row.seed, static_cast<uint32>(positions[row]));
  const auto write = [&](int number) {
    const int token = listed_ids[first + number];
    token_ids[row] = token;
    history[static_cast<int64>((*step - 1) % history_len) * gridDim.y + row] = token;
    count_token(of_row.counts_in(counts, vocab_size), token);
  };
  if (num_logits <= NUM_THREADS) {
    const float logit = threadIdx.x < num_logits ? to_float(logits[first + threadIdx.x]) : NEGATIVE_INFINITY;
    choose_among_few(of_row, logit, num_logits, random, shared.few, write);
  } else {
    const RowSlice slice(logits + first, Penalties{}, nullptr, num_logits, cluster_warp, CLUSTER * NUM_WARPS);
    choose_token(of_row, slice, random, shared.many, write);
  }
}
