// The products that make queries, keys and values of a decode step, with the norm before them, the rotation of
// queries and keys by their position after them (Su et al. 2021, arXiv 2104.09864), and keys and values written
// where the paged cache wants them: one launch instead of five.
//
// The weight holds the rows of all query heads, then of all key heads, then of all value heads. With ROTARY a
// thread block makes 8 rows and the 8 that are rotated with them, half of a head or of its turned part further on.

#include "products/head_places.cuh"
#include "products/small_batch_product.cuh"

#ifndef ROTARY
#define ROTARY 0
#endif

// Grid: (heads of `weight` * HEAD_SIZE / 16), NUM_WARPS * 32 threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS) qkv_to_cache(
    Element* __restrict__ query,              // [num_tokens, num_heads, HEAD_SIZE]
    Element* __restrict__ key_cache,          // [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8]
    Element* __restrict__ value_cache,        // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const Element* __restrict__ weight,       // [heads * HEAD_SIZE, IN_FEATURES]
    const Element* __restrict__ bias,         // one for each row of `weight`, or null
    const Element* __restrict__ input,        // [num_tokens, IN_FEATURES]
    const Element* __restrict__ norm_weight,  // [IN_FEATURES], with NORM
    const Element* __restrict__ norm_bias,    // [IN_FEATURES], or null
    const int* __restrict__ block_tables,     // [num_tokens, max_blocks_per_seq]
    const int* __restrict__ positions,        // [num_tokens]; below 0: the token is padding and is not written
    const float2* __restrict__ rotations,     // [max_positions, TURNED / 2] cosine and sine, with ROTARY
    int num_tokens, int num_heads, int num_kv_heads, int first_head, int,  // of `weight`; the grid has how many
    int max_blocks_per_seq, int64 key_block_stride,
    int64 value_block_stride,  // elements
    float epsilon) {
  __shared__ ProductShared shared;
  let_next_kernel_start();
  WarpProduct product;
#if ROTARY
  constexpr int TILES_PER_HEAD = HALF_HEAD / 8;
  using Pairs = RowPairs<8>;
  const int first_pair = blockIdx.x % TILES_PER_HEAD * 8, below = Pairs::below(first_pair);
  const int first_row = blockIdx.x / TILES_PER_HEAD * HEAD_SIZE + Pairs::first(first_pair);
#else
  const int first_row = blockIdx.x * TILE_ROWS;
  constexpr int below = 8;
#endif
  const Element* row = weight + static_cast<int64>(first_row + product.g) * IN_FEATURES;
  const Element* row_below = row + below * IN_FEATURES;
  product.fetch(row, row_below, 0);
  __shared__ TokenSlot slots[MAX_TOKENS];
  for (int token = threadIdx.x; token < num_tokens; token += NUM_THREADS) {
    slots[token] = slot_of(positions, block_tables, token, max_blocks_per_seq);
  }
  constexpr int RESULTS = ceil_div(8 * MAX_TOKENS, NUM_THREADS);  // pairs of a thread
  float shift[RESULTS][2] = {};
#pragma unroll
  for (int j = 0; j < RESULTS; j++) {
    const int i = threadIdx.x + j * NUM_THREADS;
    if (bias == nullptr || i >= 8 * num_tokens) continue;
    shift[j][0] = to_float(bias[first_row + i % 8]);
    shift[j][1] = to_float(bias[first_row + i % 8 + below]);
  }
#if NORM
  fetch_norm(shared, norm_weight, norm_bias);
  normalise(product, shared, input, num_tokens, epsilon,
            [&](int tile, int step, uint4 piece) { product.multiply(tile, step, piece); });
#else
  wait_for_previous_kernel();
  multiply_plain(product, row, row_below, input, num_tokens);
#endif
  share_sums(product, shared);

  const HeadPlaces places = {query,        key_cache,        value_cache,       num_heads,
                             num_kv_heads, key_block_stride, value_block_stride};
  const int head = first_head + first_row / HEAD_SIZE;
#pragma unroll
  for (int j = 0; j < RESULTS; j++) {
    const int i = threadIdx.x + j * NUM_THREADS, token = i / 8, local = i % 8;
    if (i >= 8 * num_tokens) break;
    const TokenSlot slot = slots[token];
    const int dims[2] = {first_row % HEAD_SIZE + local, first_row % HEAD_SIZE + local + below};
    float values[2] = {result(shared, local, token) + shift[j][0], result(shared, local + 8, token) + shift[j][1]};
#if ROTARY
    if (Pairs::are_turned(first_pair) && places.is_turned(head) && slot.position >= 0) {
      turn_pair(values, rotations[static_cast<int64>(slot.position) * HALF_TURNED + dims[0]]);
    }
#endif
#pragma unroll
    for (int k = 0; k < 2; k++) places.put(token, slot, head, dims[k], values[k]);
  }
}
