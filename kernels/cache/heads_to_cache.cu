// What follows the product that makes queries, keys and values of a decode step, where that product is somebody
// else's kernel: queries and keys are normed, if the model does that (norm_kinds.cuh), and turned by their position
// (Su et al. 2021, arXiv 2104.09864), all of a head or its first elements; keys and values go to their slots of the
// paged cache (PagedAttention, Kwon et al. 2023, arXiv 2309.06180).
//
// Queries stay where they are. The slot of a token, its angles and the weights of norms are looked up while the
// product is still running. A thread has two pieces of 16 bytes of a head: one that is turned and its partner, or
// two that follow each other where nothing is turned.
//
// BY_SLOT: tokens bring their slots and their angles, whatever sequences they are of.

#include "common/dependent_launch.cuh"
#include "common/norm_kinds.cuh"
#include "common/row.cuh"
#include "common/row_norm.cuh"

#ifndef ROTARY
#define ROTARY 0
#endif
#ifndef HEAD_NORM
#define HEAD_NORM \
  0  // 1: every head of queries and keys is a row to be normed, 2: all query heads, and all key heads, 3: every
     // head, by weights of its own
#endif
#ifndef NORM
#define NORM 2  // a NormKind
#endif
#ifndef TURNED
#define TURNED HEAD_SIZE  // elements of a head
#endif
#ifndef BY_SLOT
#define BY_SLOT 0
#endif

constexpr int HALF_HEAD = HEAD_SIZE / 2, HALF_TURNED = TURNED / 2;
constexpr int COLUMNS = HEAD_SIZE / ROW_ELEMENTS;  // pieces of 16 bytes
constexpr int PAIR_COLUMNS = COLUMNS / 2;
constexpr int TURNED_PAIRS = HALF_TURNED / ROW_ELEMENTS;
constexpr bool IN_PAIRS = ROTARY || HEAD_NORM;
constexpr bool WHOLE_PIECES = HALF_TURNED % ROW_ELEMENTS == 0;  // else elements are turned one by one
static_assert(!IN_PAIRS || COLUMNS % 2 == 0, "a head is pairs of pieces");
static_assert(!HEAD_NORM || WHOLE_PIECES, "what is normed is turned piece by piece");
static_assert(TURNED <= HEAD_SIZE, "no more than there is");
static_assert(BLOCK_SIZE % ROW_ELEMENTS == 0, "a block is whole pieces of tokens");

// Of pair `column` of a head: where its first piece begins, and how much further on its second one.
__device__ __forceinline__ bool is_turned(int column) { return TURNED == HEAD_SIZE || column < TURNED_PAIRS; }
__device__ __forceinline__ int first_of(int column) {
  return (is_turned(column) ? column : 2 * column) * ROW_ELEMENTS;
}
__device__ __forceinline__ int second_after(int column) { return is_turned(column) ? HALF_TURNED : ROW_ELEMENTS; }

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
// for a whole warp. `is_at(other, ahead)`: whether another token has the slot so many further on than this one's.
template <typename IsAt>
__device__ __forceinline__ bool is_in_piece(int token, int slot, int num_tokens, IsAt is_at) {
  const int lane = threadIdx.x % WARP_SIZE, before = slot % ROW_ELEMENTS, other = token - before + lane;
  bool follows = lane >= ROW_ELEMENTS;
  if (!follows && other >= 0 && other < num_tokens) follows = is_at(other, lane - before);
  return !__any_sync(FULL_WARP, !follows);
}

#if HEAD_NORM
// Lanes that have a head: a power of two, so that sums over a head stay among them; some may have no piece.
constexpr int lanes_for(int num_pieces) { return num_pieces <= 1 ? 1 : 2 * lanes_for(ceil_div(num_pieces, 2)); }
constexpr int LANES = lanes_for(PAIR_COLUMNS);
static_assert(LANES <= WARP_SIZE, "a warp has a head");

struct Pair {
  Row first, second;
};

__device__ __forceinline__ Pair load_fresh_pair(const Element* address, int apart) {
  return {load_fresh_row(address), load_fresh_row(address + apart)};
}

__device__ __forceinline__ Pair load_pair(const Element* address, int apart) {
  return {as_row(load_16(address)), as_row(load_16(address + apart))};
}

__device__ __forceinline__ float sum_of(const Pair& pair) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++)
    sum += to_float(pair.first.elements[i]) + to_float(pair.second.elements[i]);
  return sum;
}

__device__ __forceinline__ float sum_of_squares(const Pair& pair, float mean) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float x = to_float(pair.first.elements[i]) - mean, y = to_float(pair.second.elements[i]) - mean;
    sum += x * x + y * y;
  }
  return sum;
}

struct Moments {
  float mean = 0.0f, factor = 1.0f;

  // Rounded behind the scale, as the models' own code does.
  __device__ __forceinline__ void norm(Row& row, const Row& weights, const Row& shifts) const {
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) {
      const float centred = (to_float(row.elements[i]) - mean) * factor;
      const float scale = to_float(weights.elements[i]), shift = to_float(shifts.elements[i]);
      row.elements[i] = from_float<Element>(scaled_by_norm<NORM>(centred, scale, shift));
    }
  }
};

// The heads of a token that are normed alike, on their way to where they stay.
struct NormedHeads {
  Element* from;          // [num_heads, HEAD_SIZE]
  Element* to;            // its pieces lie `spread` times as far apart
  const Element* weight;  // [HEAD_SIZE], with HEAD_NORM 2 and 3 [num_heads, HEAD_SIZE]
  const Element* bias;    // the same of a LayerNorm, or null
  float epsilon;
  int num_heads, spread;

  __device__ __forceinline__ float factor(float squares, int width) const {
    return rsqrtf(squares / width + epsilon);
  }

  // The sum over all heads together of what `part` says of each pair; for every thread of the thread block.
  template <typename Part>
  __device__ __forceinline__ float common_sum(float (&sums)[MAX_WARPS], Part part) const {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < num_heads * PAIR_COLUMNS; i += blockDim.x) {
      const int column = i % PAIR_COLUMNS;
      sum += part(load_fresh_pair(from + i / PAIR_COLUMNS * HEAD_SIZE + first_of(column), second_after(column)));
    }
    return block_sum(sum, sums);
  }

  __device__ __forceinline__ Moments common_moments() const {
    __shared__ float sums[2][MAX_WARPS];
    const int width = num_heads * HEAD_SIZE;
    Moments of_all;
    if (NORM == LAYER_NORM)
      of_all.mean = common_sum(sums[0], [](const Pair& pair) { return sum_of(pair); }) / width;
    const float mean = of_all.mean;
    of_all.factor =
        factor(common_sum(sums[1], [=](const Pair& pair) { return sum_of_squares(pair, mean); }), width);
    return of_all;
  }

  // Of the head that LANES lanes have together; zeros in those without a piece.
  __device__ __forceinline__ Moments own_moments(const Pair& pair, bool has_piece) const {
    Moments own;
    if (NORM == LAYER_NORM) own.mean = warp_sum<LANES / 2>(sum_of(pair)) / HEAD_SIZE;
    const float squares = has_piece ? sum_of_squares(pair, own.mean) : 0.0f;
    own.factor = factor(warp_sum<LANES / 2>(squares), HEAD_SIZE);
    return own;
  }

  // `weights` and `shifts` are those of the thread's pair of every head, and `turns` its angles.
  __device__ __forceinline__ void place(Pair weights, Pair shifts, const float2 (&turns)[ROW_ELEMENTS]) const {
    const int column = threadIdx.x % LANES, heads_at_a_time = blockDim.x / LANES;
    const int first = first_of(column), apart = second_after(column);
    Moments moments;
    if (HEAD_NORM == 2) moments = common_moments();
    for (int begin = 0; begin < num_heads; begin += heads_at_a_time) {  // the same rounds for all lanes of a warp
      const int head = begin + threadIdx.x / LANES, at = head * HEAD_SIZE + first;
      const bool has_piece = head < num_heads && column < PAIR_COLUMNS;
      Pair pair = {};
      if (has_piece) {
        pair = load_fresh_pair(from + at, apart);
        if (HEAD_NORM != 1) weights = load_pair(weight + at, apart);
        if (HEAD_NORM != 1 && NORM == LAYER_NORM && bias != nullptr) shifts = load_pair(bias + at, apart);
      }
      if (HEAD_NORM != 2) moments = own_moments(pair, has_piece);
      if (!has_piece) continue;
      moments.norm(pair.first, weights.first, shifts.first);
      moments.norm(pair.second, weights.second, shifts.second);
      if (ROTARY && is_turned(column)) turn(pair.first, pair.second, turns);
      store_16(to + at * spread, as_bytes(pair.first));
      store_16(to + (at + apart) * spread, as_bytes(pair.second));
    }
  }
};
#endif

// Grid: (num_tokens / blockDim.y, 2: keys, values; with ROTARY or HEAD_NORM 3: queries)
// Threads: (a multiple of 32, tokens of a thread block, of which there is one with HEAD_NORM 2)
extern "C" __global__ void heads_to_cache(
    Element* heads,                            // [num_tokens, num_heads + 2 * num_kv_heads, HEAD_SIZE]
    Element* __restrict__ key_cache,           // [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]
    Element* __restrict__ value_cache,         // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const int* __restrict__ block_tables,      // [num_tokens, max_blocks_per_seq]; BY_SLOT: [num_tokens] slots,
                                               // int64, below 0 for padding
    const int* __restrict__ positions,         // [num_tokens]; below 0: the token is padding and is not written
    const float2* __restrict__ rotations,      // [max_positions, TURNED / 2] cosine and sine, with ROTARY;
                                               // BY_SLOT: [num_tokens, TURNED / 2]
    const Element* __restrict__ query_weight,  // [HEAD_SIZE], with HEAD_NORM; with HEAD_NORM 2 and 3 [num_heads,
                                               // HEAD_SIZE]
    const Element* __restrict__ key_weight,    // the same of the keys' norm
    const Element* __restrict__ query_bias,    // like the weights, of LayerNorms, or null
    const Element* __restrict__ key_bias, int num_heads, int num_kv_heads, int max_blocks_per_seq,
    int64 key_block_stride,
    int64 value_block_stride,  // elements
    float query_epsilon, float key_epsilon, int num_tokens) {
  let_next_kernel_start();
  const int token = blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= num_tokens) return;
#if BY_SLOT
  const int64* slots = reinterpret_cast<const int64*>(block_tables);
  const int64 place = slots[token];
  const int position = place < 0 ? -1 : token;  // of its angles
  const int64 block = place < 0 ? 0 : place / BLOCK_SIZE;
  const int slot = place < 0 ? 0 : place % BLOCK_SIZE;
  const auto is_at = [&](int other, int ahead) { return slots[other] == place + ahead; };
#else
  const int position = positions[token];
  // Before the wait: the block table does not change while a step runs.
  const auto block_of = [&](int token, int position) {
    return block_tables[static_cast<int64>(token) * max_blocks_per_seq + position / BLOCK_SIZE];
  };
  const int64 block = position < 0 ? 0 : block_of(token, position);
  const int slot = max(position, 0) % BLOCK_SIZE;
  const auto is_at = [&](int other, int ahead) {
    return positions[other] == position + ahead && block_of(other, position + ahead) == block;
  };
#endif
  const bool cached = blockIdx.y == 0;
#if HEAD_NORM
  const Element* weight = cached ? key_weight : query_weight;
  const Element* bias = cached ? key_bias : query_bias;
  Pair weights = {}, shifts = {};
  float2 own_turns[ROW_ELEMENTS] = {};
  const int column = threadIdx.x % LANES;
  if (column < PAIR_COLUMNS) {
    const int at = first_of(column), apart = second_after(column);
    if (HEAD_NORM == 1) weights = load_pair(weight + at, apart);
    if (HEAD_NORM == 1 && NORM == LAYER_NORM && bias != nullptr) shifts = load_pair(bias + at, apart);
    const float2* turns = rotations + static_cast<int64>(max(position, 0)) * HALF_TURNED + at;
#pragma unroll
    for (int i = 0; ROTARY && i < ROW_ELEMENTS; i++) {
      if (is_turned(column)) own_turns[i] = turns[i];
    }
  }
#endif
  const bool in_piece = blockIdx.y == 1 && position >= 0 && is_in_piece(token, slot, num_tokens, is_at);
  wait_for_previous_kernel();
  if (position < 0) return;
  const int token_width = (num_heads + 2 * num_kv_heads) * HEAD_SIZE;
  Element* mine = heads + static_cast<int64>(token) * token_width;
  if (blockIdx.y == 1) {
    // Neighbouring lanes take neighbouring elements, so that a store goes to few lines of L2.
    const Element* values = mine + (num_heads + num_kv_heads) * HEAD_SIZE;
    Element* places = value_cache + block * value_block_stride + slot;
    if (in_piece) {  // tokens of a prompt: the first writes for all, 16 bytes where each alone has one element
      if (slot % ROW_ELEMENTS != 0) return;
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
                              bias,
                              cached ? key_epsilon : query_epsilon,
                              cached ? num_kv_heads : num_heads,
                              cached ? BLOCK_SIZE : 1};
  normed.place(weights, shifts, own_turns);
#elif ROTARY
  const float2* turns = rotations + static_cast<int64>(position) * HALF_TURNED;
  const int num_heads_here = cached ? num_kv_heads : num_heads;
  if (WHOLE_PIECES) {
    for (int i = threadIdx.x; i < num_heads_here * PAIR_COLUMNS; i += blockDim.x) {
      const int column = i % PAIR_COLUMNS, apart = second_after(column);
      const int at = i / PAIR_COLUMNS * HEAD_SIZE + first_of(column);
      if (!cached && !is_turned(column)) continue;
      Row first = load_fresh_row(from + at), second = load_fresh_row(from + at + apart);
      if (is_turned(column)) turn(first, second, turns + column * ROW_ELEMENTS);
      store_16(cached ? keys + at * BLOCK_SIZE : from + at, as_bytes(first));
      store_16(cached ? keys + (at + apart) * BLOCK_SIZE : from + at + apart, as_bytes(second));
    }
  } else {
    const auto put = [&](int at, float value) {
      const int piece = at / ROW_ELEMENTS * ROW_ELEMENTS;
      (cached ? keys + piece * BLOCK_SIZE + at % ROW_ELEMENTS : from + at)[0] = from_float<Element>(value);
    };
    for (int i = threadIdx.x; i < num_heads_here * HALF_HEAD; i += blockDim.x) {
      const int pair = i % HALF_HEAD, start = i / HALF_HEAD * HEAD_SIZE;
      const bool turned = pair < HALF_TURNED;
      const int first = start + (turned ? pair : 2 * pair), second = first + (turned ? HALF_TURNED : 1);
      const float x = to_float(__ldcg(from + first)), y = to_float(__ldcg(from + second));
      const float2 t = turned ? turns[pair] : make_float2(1.0f, 0.0f);
      put(first, x * t.x - y * t.y);
      put(second, y * t.x + x * t.y);
    }
  }
#else
  for (int i = threadIdx.x; i < num_kv_heads * COLUMNS; i += blockDim.x) {
    store_16(keys + i * ROW_ELEMENTS * BLOCK_SIZE, as_bytes(load_fresh_row(from + i * ROW_ELEMENTS)));
  }
#endif
}
