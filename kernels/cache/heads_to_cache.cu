// What follows the product that makes queries, keys and values of a decode step, where that product is somebody
// else's kernel: queries and keys are normed, if the model does that (RMSNorm, Zhang and Sennrich 2019, arXiv
// 1910.07467), and turned by their position (Su et al. 2021, arXiv 2104.09864), keys and values go to their slots
// of the paged cache (PagedAttention, Kwon et al. 2023, arXiv 2309.06180).
//
// Queries stay where they are. The slot of a token, its angles and the weights of norms are looked up while the
// product is still running. A thread has a piece of 16 bytes of a head and the one that it is paired with.

#include "common/block_sum.cuh"
#include "common/dependent_launch.cuh"
#include "common/row.cuh"

#ifndef ROTARY
#define ROTARY 0
#endif
#ifndef HEAD_NORM
#define HEAD_NORM \
  0  // 1: every head of queries and keys is a row to be normed, 2: all query heads, and all key heads
#endif

constexpr int HALF_HEAD = HEAD_SIZE / 2;
constexpr int HALF_COLUMNS = HALF_HEAD / ROW_ELEMENTS;  // pieces of 16 bytes
constexpr int COLUMNS = HEAD_SIZE / ROW_ELEMENTS;
static_assert(!(ROTARY || HEAD_NORM) || HALF_HEAD % ROW_ELEMENTS == 0, "half a head is whole pieces");

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

// Whether a token is one of ROW_ELEMENTS that follow one another, in the batch and in an aligned piece of a block:
// for a whole warp.
__device__ __forceinline__ bool is_in_piece(const int* block_tables, const int* positions, int token, int position,
                                            int64 block, int max_blocks_per_seq) {
  const int lane = threadIdx.x % WARP_SIZE, first = token - position % ROW_ELEMENTS, other = first + lane;
  bool follows = lane >= ROW_ELEMENTS;
  if (!follows && position >= 0 && other >= 0 && other < static_cast<int>(gridDim.x)) {
    const int there = position - position % ROW_ELEMENTS + lane;
    follows = positions[other] == there &&
              block_tables[static_cast<int64>(other) * max_blocks_per_seq + there / BLOCK_SIZE] == block;
  }
  return !__any_sync(FULL_WARP, !follows);
}

#if HEAD_NORM
// Lanes that have a head: a power of two, so that sums over a head stay among them; some may have no piece.
constexpr int lanes_for(int num_pieces) { return num_pieces <= 1 ? 1 : 2 * lanes_for(ceil_div(num_pieces, 2)); }
constexpr int LANES = lanes_for(HALF_COLUMNS);
static_assert(LANES <= WARP_SIZE, "a warp has a head");

struct Pair {
  Row first, second;
};

__device__ __forceinline__ Pair load_fresh_pair(const Element* address) {
  return {load_fresh_row(address), load_fresh_row(address + HALF_HEAD)};
}

__device__ __forceinline__ Pair load_pair(const Element* address) {
  return {as_row(load_16(address)), as_row(load_16(address + HALF_HEAD))};
}

__device__ __forceinline__ float sum_of_squares(const Pair& pair) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float x = to_float(pair.first.elements[i]), y = to_float(pair.second.elements[i]);
    sum += x * x + y * y;
  }
  return sum;
}

// Rounded before it is scaled and behind that, as the models' own code does.
__device__ __forceinline__ void scale(Row& row, float factor, const Row& weights) {
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float normed = to_float(from_float<Element>(to_float(row.elements[i]) * factor));
    row.elements[i] = from_float<Element>(normed * to_float(weights.elements[i]));
  }
}

// The heads of a token that are normed alike, on their way to where they stay.
struct NormedHeads {
  Element* from;          // [num_heads, HEAD_SIZE]
  Element* to;            // its pieces lie `spread` times as far apart
  const Element* weight;  // [HEAD_SIZE], with HEAD_NORM 2 [num_heads, HEAD_SIZE]
  float epsilon;
  int num_heads, spread;

  __device__ __forceinline__ float factor(float squares, int width) const {
    return rsqrtf(squares / width + epsilon);
  }

  // Of all heads together; for every thread of the thread block.
  __device__ __forceinline__ float common_factor() const {
    __shared__ float sums[MAX_WARPS];
    float squares = 0.0f;
    for (int i = threadIdx.x; i < num_heads * HALF_COLUMNS; i += blockDim.x) {
      squares += sum_of_squares(load_fresh_pair(from + first_of_pair(i)));
    }
    return factor(block_sum(squares, sums), num_heads * HEAD_SIZE);
  }

  // `weights` are those of the thread's pair of every head, and `turns` its angles.
  __device__ __forceinline__ void place(Pair weights, const float2 (&turns)[ROW_ELEMENTS]) const {
    const int column = threadIdx.x % LANES, heads_at_a_time = blockDim.x / LANES;
    const float common = HEAD_NORM == 2 ? common_factor() : 0.0f;
    for (int begin = 0; begin < num_heads; begin += heads_at_a_time) {  // the same rounds for all lanes of a warp
      const int head = begin + threadIdx.x / LANES, at = head * HEAD_SIZE + column * ROW_ELEMENTS;
      const bool has_piece = head < num_heads && column < HALF_COLUMNS;
      Pair pair = {};
      if (has_piece) {
        pair = load_fresh_pair(from + at);
        if (HEAD_NORM == 2) weights = load_pair(weight + at);
      }
      const float by = HEAD_NORM == 2 ? common : factor(warp_sum<LANES / 2>(sum_of_squares(pair)), HEAD_SIZE);
      if (!has_piece) continue;
      scale(pair.first, by, weights.first);
      scale(pair.second, by, weights.second);
      if (ROTARY) turn(pair.first, pair.second, turns);
      store_16(to + at * spread, as_bytes(pair.first));
      store_16(to + (at + HALF_HEAD) * spread, as_bytes(pair.second));
    }
  }
};
#endif

// Grid: (num_tokens, 2: keys, values; with ROTARY or HEAD_NORM 3: queries), threads a multiple of 32
extern "C" __global__ void heads_to_cache(
    Element* heads,                            // [num_tokens, num_heads + 2 * num_kv_heads, HEAD_SIZE]
    Element* __restrict__ key_cache,           // [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]
    Element* __restrict__ value_cache,         // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const int* __restrict__ block_tables,      // [num_tokens, max_blocks_per_seq]
    const int* __restrict__ positions,         // [num_tokens]; below 0: the token is padding and is not written
    const float2* __restrict__ rotations,      // [max_positions, HEAD_SIZE / 2] cosine and sine, with ROTARY
    const Element* __restrict__ query_weight,  // [HEAD_SIZE], with HEAD_NORM; with HEAD_NORM 2 [num_heads,
                                               // HEAD_SIZE]
    const Element* __restrict__ key_weight,    // the same of the keys' norm
    int num_heads, int num_kv_heads, int max_blocks_per_seq, int64 key_block_stride,
    int64 value_block_stride,  // elements
    float query_epsilon, float key_epsilon) {
  let_next_kernel_start();
  const int token = blockIdx.x;
  const int position = positions[token];
  // Before the wait: the block table does not change while a step runs.
  const int64 block =
      position < 0 ? 0 : block_tables[static_cast<int64>(token) * max_blocks_per_seq + position / BLOCK_SIZE];
  const int slot = position % BLOCK_SIZE;
  const bool cached = blockIdx.y == 0;
#if HEAD_NORM
  const Element* weight = cached ? key_weight : query_weight;
  Pair weights = {};
  float2 own_turns[ROW_ELEMENTS] = {};
  if (threadIdx.x % LANES < HALF_COLUMNS) {
    const int at = threadIdx.x % LANES * ROW_ELEMENTS;
    if (HEAD_NORM == 1) weights = load_pair(weight + at);
    const float2* turns = rotations + static_cast<int64>(max(position, 0)) * HALF_HEAD + at;
#pragma unroll
    for (int i = 0; ROTARY && i < ROW_ELEMENTS; i++) own_turns[i] = turns[i];
  }
#endif
  const bool in_piece =
      blockIdx.y == 1 && is_in_piece(block_tables, positions, token, position, block, max_blocks_per_seq);
  wait_for_previous_kernel();
  if (position < 0) return;
  const int token_width = (num_heads + 2 * num_kv_heads) * HEAD_SIZE;
  Element* mine = heads + static_cast<int64>(token) * token_width;
  if (blockIdx.y == 1) {
    // Neighbouring lanes take neighbouring elements, so that a store goes to few lines of L2.
    const Element* values = mine + (num_heads + num_kv_heads) * HEAD_SIZE;
    Element* places = value_cache + block * value_block_stride + slot;
    if (in_piece) {  // tokens of a prompt: the first writes for all, 16 bytes where each alone has one element
      if (position % ROW_ELEMENTS != 0) return;
#pragma unroll 2
      for (int i = threadIdx.x; i < num_kv_heads * HEAD_SIZE; i += blockDim.x) {
        Row piece;
#pragma unroll
        for (int j = 0; j < ROW_ELEMENTS; j++) piece.elements[j] = __ldcg(values + i + j * token_width);
        store_16(places + i * BLOCK_SIZE, as_bytes(piece));
      }
      return;
    }
#pragma unroll 4
    for (int i = threadIdx.x; i < num_kv_heads * HEAD_SIZE; i += blockDim.x)
      places[i * BLOCK_SIZE] = __ldcg(values + i);
    return;
  }
  Element* from = cached ? mine + num_heads * HEAD_SIZE : mine;
  Element* keys = key_cache + block * key_block_stride + slot * ROW_ELEMENTS;
#if HEAD_NORM
  const NormedHeads normed = {from,
                              cached ? keys : from,
                              weight,
                              cached ? key_epsilon : query_epsilon,
                              cached ? num_kv_heads : num_heads,
                              cached ? BLOCK_SIZE : 1};
  normed.place(weights, own_turns);
#elif ROTARY
  const float2* turns = rotations + static_cast<int64>(position) * HALF_HEAD;
  const int num_pairs = (cached ? num_kv_heads : num_heads) * HALF_COLUMNS;
  for (int i = threadIdx.x; i < num_pairs; i += blockDim.x) {
    const int at = first_of_pair(i);
    Row first = load_fresh_row(from + at), second = load_fresh_row(from + at + HALF_HEAD);
    turn(first, second, turns + i % HALF_COLUMNS * ROW_ELEMENTS);
    store_16(cached ? keys + at * BLOCK_SIZE : from + at, as_bytes(first));
    store_16(cached ? keys + (at + HALF_HEAD) * BLOCK_SIZE : from + at + HALF_HEAD, as_bytes(second));
  }
#else
  for (int i = threadIdx.x; i < num_kv_heads * COLUMNS; i += blockDim.x) {
    store_16(keys + i * ROW_ELEMENTS * BLOCK_SIZE, as_bytes(load_fresh_row(from + i * ROW_ELEMENTS)));
  }
#endif
}
