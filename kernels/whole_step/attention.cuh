// The attention of persistent_decode.cu: a thread block for each token, KV head and split, or half of one, a warp
// for 32 cached tokens at a time. The states of their softmaxes meet in shared memory (Milakov and Gimelshein 2018,
// arXiv 1805.02867).

#pragma once

#include "whole_step/layers.cuh"
#include "whole_step/merge.cuh"
#include "whole_step/softmax.cuh"

// Queries and the new key, which lie in shared memory, turned by the angles of their position. Ends in a barrier.
__device__ __forceinline__ void rotate_vectors(Shared& shared, const Column& column, const float2* rotations) {
#if ROTARY
  constexpr int HALF = HEAD_SIZE / 2;
  const Place place;
  for (int i = column.thread_of(place); i < (GROUP_SIZE + 1) * HALF; i += SEAT_THREADS) {
    Element* vector = shared.vectors[column.seat][i / HALF];
    const int dim = i % HALF;
    const float2 turn = rotations[static_cast<int64>(max(column.position, 0)) * HALF + dim];
    const float x = to_float(vector[dim]), y = to_float(vector[dim + HALF]);
    vector[dim] = from_float<Element>(x * turn.x - y * turn.y);
    vector[dim + HALF] = from_float<Element>(y * turn.x + x * turn.y);
  }
  sync_warps();
#endif
}

// Queries, new key and new value of a column into shared memory, rotated. Ends in a barrier.
__device__ __forceinline__ void collect_vectors(Shared& shared, const Published& published, const Column& column,
                                                const float2* rotations) {
  const Place place;
  const Element* row = published.qkv() + static_cast<int64>(column.token) * QKV_ROWS;
  for (int i = column.thread_of(place); i < VECTORS * HEAD_SIZE / 2; i += SEAT_THREADS) {
    const int vector = i / (HEAD_SIZE / 2), dim = i % (HEAD_SIZE / 2) * 2;
    uint32 word[1][1];
    await_words<1, 1>(word, row + Unit::head_of(column.kv_head, vector) * HEAD_SIZE + dim, 0);
    *reinterpret_cast<uint32*>(&shared.vectors[column.seat][vector][dim]) = word[0][0];
  }
  sync_warps();
  rotate_vectors(shared, column, rotations);
}

// The new key and value to the place in the cache that the next steps read them from.
__device__ __forceinline__ void write_cache(const Shared& shared, const Layer& layer, const Column& column) {
  // By the last warps: the first ones put states together.
  const int dim = column.thread_of(Place()) - (SEAT_THREADS - HEAD_SIZE);
  if (column.position < 0 || dim < 0) return;
  const int64 block = column.offset_of(column.block_table[column.position / BLOCK_SIZE]);
  const int slot = column.position % BLOCK_SIZE;
  layer.key_cache[block + (dim / PIECE * BLOCK_SIZE + slot) * PIECE + dim % PIECE] =
      shared.vectors[column.seat][GROUP_SIZE][dim];
  layer.value_cache[block + dim * BLOCK_SIZE + slot] = shared.vectors[column.seat][GROUP_SIZE + 1][dim];
}

// The warp's share of a column's cached tokens, its first tile being in `tile`; states go to shared memory. `scale`
// makes units of log2.
__device__ __forceinline__ void attend_cached(Shared& shared, const Layer& layer, const Column& column,
                                              CachedTile& tile, float scale) {
  constexpr int TURN = SHARES * SEAT_WARPS;  // tiles
  const Place place;
  const int end = max(column.position, 0);
  Attention attention;
  uint4 query[HEAD_SIZE / STEP];
#pragma unroll
  for (int s = 0; s < HEAD_SIZE / STEP; s++) {
    query[s] = load_16(shared.vectors[column.seat][min(place.g, GROUP_SIZE - 1)] + s * STEP + place.q * PIECE);
  }
#pragma unroll 1
  for (int index = column.split * SEAT_WARPS + column.warp_of(place); index * TILE_TOKENS < end; index += TURN) {
    const int num_tokens = end - index * TILE_TOKENS;
    if (num_tokens < TILE_TOKENS) tile.clear_values(num_tokens);
    float scores[2][4];
    attention.score(scores, tile, query, num_tokens, scale);
    attention.weigh(shared.weights[place.warp], scores);
    __syncwarp();
    attention.add(tile, load_16(shared.weights[place.warp][min(place.g, GROUP_SIZE - 1)] + place.q * PIECE));
    __syncwarp();
    if ((index + TURN) * TILE_TOKENS < end) {
      TileBlocks blocks;
      blocks.look_up(column, index + TURN);
      tile.fetch(layer, column, blocks);
    }
  }
  attention.share(shared);
}

// Scores of the new token itself, which is not read from the cache.
__device__ __forceinline__ void score_new(Shared& shared, const Column& column, float scale) {
  const Place place;
  const auto& vectors = shared.vectors[column.seat];
  const int row = SEAT_WARPS - 1 - column.warp_of(place);
  if (row >= GROUP_SIZE) return;
  float low, high, key_low, key_high;
  unpack_pair<Element>(reinterpret_cast<const uint32*>(vectors[row])[place.lane], low, high);
  unpack_pair<Element>(reinterpret_cast<const uint32*>(vectors[GROUP_SIZE])[place.lane], key_low, key_high);
  const float sum = warp_sum(low * key_low + high * key_high);
  if (place.lane == 0) shared.new_score[column.seat][row] = sum * scale;
}

// What comes after the first tiles of a column, on its way into the L2 cache: there is time for it between layers.
__device__ __forceinline__ void prefetch_rest(const Layer& layer, const Column& column) {
  constexpr int BYTES = HEAD_SIZE * BLOCK_SIZE * sizeof(Element), TURN = SHARES * SEAT_WARPS * TILE_TOKENS;
  const int thread = column.thread_of(Place());
  for (int token = TURN + thread * BLOCK_SIZE; token < column.position; token += SEAT_THREADS * BLOCK_SIZE) {
    if (token / TILE_TOKENS / SEAT_WARPS % SHARES != column.split) continue;
    const int64 offset = column.offset_of(column.block_table[token / BLOCK_SIZE]);
    prefetch_bulk(layer.key_cache + offset, BYTES);
    prefetch_bulk(layer.value_cache + offset, BYTES);
  }
}

// The thread block's share of the middle, where it attends. Its barriers also keep the next layer from overwriting
// what this one has left in shared memory.
__device__ __forceinline__ void share_middle(Shared& shared, const Published& published, int layer, float epsilon,
                                             int64 to_other) {
  Into<UP_UNITS> into;
  take_up(into, shared, published, layer % 2);
  produce_middle(shared, published, into, epsilon, to_other);
}

#if CLUSTER == 1
// The layers of a thread block that attends: its column, then its share of the middle. Keys and values are asked
// for half a layer before the query is there.
__device__ __forceinline__ void attend_layers(Shared& shared, Element* memory, const Column& column,
                                              const float2* rotations, int num_layers, float scale, float epsilon,
                                              int64 to_other) {
  FirstTile first(column);
  first.fetch(shared.layers[0], column);
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    const Published published(memory, l);
    collect_vectors(shared, published, column, rotations);
    if (column.split == 0) score_new(shared, column, scale * LOG2_E);
    attend_cached(shared, shared.layers[l], column, first.tile, scale * LOG2_E);
    sync_warps();
    publish_attended(shared, published, column, to_other);
    if (column.split == 0) write_cache(shared, shared.layers[l], column);
    if (l + 1 < num_layers) {
      first.fetch(shared.layers[l + 1], column);
      prefetch_rest(shared.layers[l + 1], column);
    }
    share_middle(shared, published, l, epsilon, to_other);
  }
}
#endif
