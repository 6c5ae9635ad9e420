// What follows the product that makes queries, keys and values of a decode step, where that product is somebody
// else's kernel: queries and keys are turned by their position (Su et al. 2021, arXiv 2104.09864), keys and values
// go to their slots of the paged cache (PagedAttention, Kwon et al. 2023, arXiv 2309.06180).
//
// Queries stay where they are. The slot of a token is looked up while the product is still running.

#include "common/dependent_launch.cuh"
#include "common/row.cuh"

#ifndef ROTARY
#define ROTARY 0
#endif

constexpr int HALF_HEAD = HEAD_SIZE / 2;
constexpr int HALF_COLUMNS = HALF_HEAD / ROW_ELEMENTS;  // pieces of 16 bytes
constexpr int COLUMNS = HEAD_SIZE / ROW_ELEMENTS;
static_assert(!ROTARY || HALF_HEAD % ROW_ELEMENTS == 0, "half a head is whole pieces");

// `index` counts pieces in the first halves of all heads; its partner lies half a head further on.
__device__ __forceinline__ int first_of_pair(int index) {
  return index / HALF_COLUMNS * HEAD_SIZE + index % HALF_COLUMNS * ROW_ELEMENTS;
}

__device__ __forceinline__ void turn(Row& first, Row& second, const float2* turns) {
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float2 t = turns[i];
    const float x = to_float(first.elements[i]), y = to_float(second.elements[i]);
    first.elements[i] = from_float<Element>(x * t.x - y * t.y);
    second.elements[i] = from_float<Element>(y * t.x + x * t.y);
  }
}

// Grid: (num_tokens, 2: keys, values; with ROTARY 3: queries), any number of threads.
extern "C" __global__ void heads_to_cache(
    Element* heads,                        // [num_tokens, num_heads + 2 * num_kv_heads, HEAD_SIZE]
    Element* __restrict__ key_cache,       // [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]
    Element* __restrict__ value_cache,     // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const int* __restrict__ block_tables,  // [num_tokens, max_blocks_per_seq]
    const int* __restrict__ positions,     // [num_tokens]; below 0: the token is padding and is not written
    const float2* __restrict__ rotations,  // [max_positions, HEAD_SIZE / 2] cosine and sine, with ROTARY
    int num_heads, int num_kv_heads, int max_blocks_per_seq, int64 key_block_stride,
    int64 value_block_stride) {  // elements
  let_next_kernel_start();
  const int token = blockIdx.x;
  const int position = positions[token];
  // Before the wait: the block table does not change while a step runs.
  const int64 block =
      position < 0 ? 0 : block_tables[static_cast<int64>(token) * max_blocks_per_seq + position / BLOCK_SIZE];
  const int slot = position % BLOCK_SIZE;
  wait_for_previous_kernel();
  if (position < 0) return;
  Element* mine = heads + static_cast<int64>(token) * (num_heads + 2 * num_kv_heads) * HEAD_SIZE;
  if (blockIdx.y == 1) {
    // Neighbouring lanes take neighbouring elements, so that a store goes to few lines of L2.
    const Element* values = mine + (num_heads + num_kv_heads) * HEAD_SIZE;
    Element* places = value_cache + block * value_block_stride + slot;
#pragma unroll 4
    for (int i = threadIdx.x; i < num_kv_heads * HEAD_SIZE; i += blockDim.x)
      places[i * BLOCK_SIZE] = __ldcg(values + i);
    return;
  }
  Element* from = blockIdx.y == 0 ? mine + num_heads * HEAD_SIZE : mine;
  Element* keys = key_cache + block * key_block_stride + slot * ROW_ELEMENTS;
#if ROTARY
  const float2* turns = rotations + static_cast<int64>(position) * HALF_HEAD;
  const int num_pairs = (blockIdx.y == 0 ? num_kv_heads : num_heads) * HALF_COLUMNS;
  for (int i = threadIdx.x; i < num_pairs; i += blockDim.x) {
    const int at = first_of_pair(i);
    Row first = load_fresh_row(from + at), second = load_fresh_row(from + at + HALF_HEAD);
    turn(first, second, turns + i % HALF_COLUMNS * ROW_ELEMENTS);
    const bool cached = blockIdx.y == 0;
    store_16(cached ? keys + at * BLOCK_SIZE : from + at, as_bytes(first));
    store_16(cached ? keys + (at + HALF_HEAD) * BLOCK_SIZE : from + at + HALF_HEAD, as_bytes(second));
  }
#else
  for (int i = threadIdx.x; i < num_kv_heads * COLUMNS; i += blockDim.x) {
    store_16(keys + i * ROW_ELEMENTS * BLOCK_SIZE, as_bytes(load_fresh_row(from + i * ROW_ELEMENTS)));
  }
#endif
}
