// How likely the chosen token of each row was, its rank, and the most likely tokens beside it.
//
//   logprob[token] = logit - max - log(sum over the row of exp(logit - max))
//   rank           = 1 + tokens that are likelier, or as likely with a lower id
//
// How is said in likely_tokens.cuh. With CLUSTER above 1 as many thread blocks share a row, where there are too few
// rows to fill the GPU.

#include "sampling/likely_tokens.cuh"

// Grid: (num_rows * CLUSTER), NUM_THREADS threads
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS)
    top_logprobs(int* __restrict__ token_ids,   // [num_rows, width]: the chosen one, then the most likely ones
                 float* __restrict__ logprobs,  // [num_rows, width]: theirs
                 int* __restrict__ ranks,       // [num_rows]: of the chosen ones
                 const Element* __restrict__ logits,  // [num_rows, vocab_size], strided
                 const int* __restrict__ chosen,      // [num_rows]
                 const int* __restrict__ counts,  // [num_rows]: most likely ones wanted; below 0: nothing at all
                 int vocab_size, int64 row_stride, int width) {
  __shared__ LikelyShared shared;
  __shared__ RowShared of_row;
  const LikelyOutputs to{token_ids, logprobs, ranks, width};
  find_likely_tokens<true>(shared, of_row, to, logits, chosen, counts, blockIdx.x / CLUSTER, blockIdx.x % CLUSTER,
                           vocab_size, row_stride);
}
