// What becomes of the newest token's heads between the product that makes them and attention, where attention does
// it itself: queries and keys are normed head by head and turned by their position (Su et al. 2021, arXiv
// 2104.09864), rounded as heads_to_cache.cu rounds them, and key and value go to their slot of the paged cache. For
// `DecodeWarp` (decode_tiles.cuh), one lane of which has both elements of each pair that is turned.

#pragma once

#include "attention/decode_tiles.cuh"
#include "common/norm_kinds.cuh"
#include "common/row.cuh"

#ifndef WRITES_NEW
#define WRITES_NEW \
  0  // behind the query heads of a token lie its key and value heads, which are not cached yet. 1: they
     // go there as they are, 2: queries and keys are turned, 3: they are RMS-normed, then turned
#endif
constexpr bool TURNS = WRITES_NEW >= 2, NORMS = WRITES_NEW == 3;
constexpr int HALF_HEAD = HEAD_SIZE / 2;
constexpr int HALF_ROWS = KEY_ROWS / 2;  // 16-byte rows of a head's first half
static_assert(!TURNS || HALF_ROWS % 4 == 0, "both elements of a pair are one lane's");

struct NewHeads {
  const float2* turns;                       // [HALF_HEAD] of the token: cosine and sine
  const Element *query_weight, *key_weight;  // [HEAD_SIZE], of their norms
  float query_epsilon, key_epsilon;

  // On their way while the kernel before is still running, since all layers' weights have passed through L2 since.
  __device__ __forceinline__ void ask_for() const {
    const int at = threadIdx.x % WARP_SIZE * 128;
    const auto ask = [=](const void* from, int bytes) {
      if (at < bytes) asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + at));
    };
    if (TURNS) ask(turns, HALF_HEAD * sizeof(float2));
    if (NORMS) ask(query_weight, HEAD_SIZE * sizeof(Element));
    if (NORMS) ask(key_weight, HEAD_SIZE * sizeof(Element));
  }
};

__device__ __forceinline__ float sum_of_squares(const Row& row) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) sum += to_float(row.elements[i]) * to_float(row.elements[i]);
  return sum;
}

__device__ __forceinline__ void norm_row(Row& row, float factor, const Element* weight) {
  const Row weights = as_row(load_16(weight));
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float scaled =
        scaled_by_norm<RMS_NORM>(to_float(row.elements[i]) * factor, to_float(weights.elements[i]), 0.0f);
    row.elements[i] = from_float<Element>(scaled);
  }
}

// Queries of all rows of a warp, as `load_query` has left them.
template <int ROW_TILES>
__device__ __forceinline__ void change_queries(DecodeWarp<ROW_TILES>& warp, const NewHeads& heads) {
  constexpr int APART = HALF_ROWS / 4;
#pragma unroll
  for (int t = 0; t < ROW_TILES; t++) {
    Row rows[KEY_STEPS];
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < KEY_STEPS; j++) {
      rows[j] = as_row(warp.query[t][j]);
      sum += sum_of_squares(rows[j]);
    }
    if (NORMS) {
      const float factor = rsqrtf(warp_sum<2, 1>(sum) / HEAD_SIZE + heads.query_epsilon);
#pragma unroll
      for (int j = 0; j < KEY_STEPS; j++) norm_row(rows[j], factor, heads.query_weight + 8 * (warp.q + 4 * j));
    }
#pragma unroll
    for (int j = 0; j < APART; j++) {
      const float2* turns = heads.turns + 8 * (warp.q + 4 * j);
#pragma unroll
      for (int i = 0; i < ROW_ELEMENTS; i++) {
        const float2 turn = turns[i];
        const float x = to_float(rows[j].elements[i]), y = to_float(rows[j + APART].elements[i]);
        rows[j].elements[i] = from_float<Element>(x * turn.x - y * turn.y);
        rows[j + APART].elements[i] = from_float<Element>(y * turn.x + x * turn.y);
      }
    }
#pragma unroll
    for (int j = 0; j < KEY_STEPS; j++) warp.query[t][j] = as_bytes(rows[j]);
  }
}

// A lane's 16 bytes of a key; lanes beyond the head have zeros.
__device__ __forceinline__ Row changed_key(Row row, const NewHeads& heads) {
  const int lane = threadIdx.x % WARP_SIZE, at = min(lane, KEY_ROWS - 1);
  if (NORMS) {
    const float factor = rsqrtf(warp_sum(sum_of_squares(row)) / HEAD_SIZE + heads.key_epsilon);
    norm_row(row, factor, heads.key_weight + 8 * at);
  }
  const bool is_first = at < HALF_ROWS;
  const uint4 own = as_bytes(row);
  const int partner = is_first ? at + HALF_ROWS : at - HALF_ROWS;
  const Row other =
      as_row(make_uint4(__shfl_sync(FULL_WARP, own.x, partner), __shfl_sync(FULL_WARP, own.y, partner),
                        __shfl_sync(FULL_WARP, own.z, partner), __shfl_sync(FULL_WARP, own.w, partner)));
  const float2* turns = heads.turns + 8 * (at % HALF_ROWS);
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float2 turn = turns[i];
    const float mine = to_float(row.elements[i]), its = to_float(other.elements[i]);
    row.elements[i] = from_float<Element>(is_first ? mine * turn.x - its * turn.y : mine * turn.x + its * turn.y);
  }
  return row;
}

// By the one warp that is going to read it: the newest token's key and value into the cache.
__device__ __forceinline__ void write_new(const PagedContext& context, const NewHeads& heads, const Element* key,
                                          const Element* value, int position) {
  static_assert(KEY_ROWS <= WARP_SIZE, "a lane has a row of a key");
  const int lane = threadIdx.x % WARP_SIZE, slot = position % BLOCK_SIZE;
  const int64 block = __ldg(context.block_table + position / BLOCK_SIZE);
  Element* keys = const_cast<Element*>(context.key_cache) + block * context.key_stride + slot * 8;
  Element* values = const_cast<Element*>(context.value_cache) + block * context.value_stride + slot;
  Row row = as_row(lane < KEY_ROWS ? load_in_order(key + 8 * lane) : make_uint4(0, 0, 0, 0));
  if (TURNS) row = changed_key(row, heads);
  if (lane < KEY_ROWS) store_16(keys + lane * BLOCK_SIZE * 8, as_bytes(row));
#pragma unroll
  for (int i = lane; i < HEAD_SIZE; i += WARP_SIZE) values[i * BLOCK_SIZE] = __ldcg(value + i);
  __threadfence_block();
  __syncwarp();
}
