// Logits of rows in which only some tokens can be chosen: the others become minus infinity, in place.
//
// A warp takes 32 neighbours, whose bits are one word; where all of them may come, it touches no logit.

#include "common/common.cuh"

constexpr int NUM_THREADS = 1024;

// Grid: (num_masked, any number of thread blocks), NUM_THREADS threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    token_mask(float* __restrict__ logits,       // [num_rows, vocab_size]
               const int* __restrict__ rows,     // [num_masked]: which of them have a mask
               const uint32* __restrict__ bits,  // [num_masked, num_words]: bit i % 32 of word i / 32 is token i
               int vocab_size, int num_words) {
  float* row = logits + static_cast<int64>(rows[blockIdx.x]) * vocab_size;
  const uint32* words = bits + static_cast<int64>(blockIdx.x) * num_words;
  for (int i = blockIdx.y * NUM_THREADS + threadIdx.x; i < vocab_size; i += gridDim.y * NUM_THREADS) {
    const uint32 word = words[i / WARP_SIZE];
    if (!(word >> i % WARP_SIZE & 1)) row[i] = NEGATIVE_INFINITY;
  }
}
