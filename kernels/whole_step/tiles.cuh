// Cached keys and values on their way into registers, in the order in which the products of a warp take them.

#pragma once

#include "common/bulk_copy.cuh"
#include "whole_step/memory.cuh"

// The keys and values of a token, KV head and split: what a thread's warp, and those beside it in a seat, attend
// to.
struct Column {
  int seat, token, kv_head, split;
  int position;  // of the new token; below 0: padding
  const int* block_table;

  __device__ __forceinline__ Column(const int* positions, const int* block_tables, int max_blocks) {
    constexpr int OF_HEAD = IS_CLUSTERED ? CLUSTER : SPLITS;
    const int index = block_index();
    seat = SEATS > 1 ? Place().warp / SEAT_WARPS : 0;
    token = index / (OF_HEAD * NUM_KV_HEADS) * SEATS + seat;
    kv_head = index / OF_HEAD % NUM_KV_HEADS, split = index % OF_HEAD;
    position = positions[token];
    block_table = block_tables + static_cast<int64>(token) * max_blocks;
  }

  // Where the thread is in its seat.
  __device__ __forceinline__ int warp_of(const Place& place) const { return place.warp - seat * SEAT_WARPS; }
  __device__ __forceinline__ int thread_of(const Place& place) const { return place.thread - seat * SEAT_THREADS; }

  // In elements, from the beginning of a layer's key or value cache.
  __device__ __forceinline__ int64 offset_of(int block) const {
    return (static_cast<int64>(block) * NUM_KV_HEADS + kv_head) * HEAD_SIZE * BLOCK_SIZE;
  }
};

// The blocks of a tile of 32 tokens, one for every 8; tokens past the end are those of the last block.
struct TileBlocks {
  int of[TILE_TOKENS / PIECE];

  __device__ __forceinline__ void look_up(const Column& column, int tile) {
    const int last = max(column.position - 1, 0), first = tile * TILE_TOKENS;
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) {
      of[j] = column.block_table[min(first + j * PIECE, last) / BLOCK_SIZE];
    }
  }
};

// 32 cached tokens of a warp, as the lanes hold them for its products: keys of tokens g + 8j, dimensions of `q`;
// values of dimensions g + 8i, tokens of `q`.
struct CachedTile {
  uint4 keys[TILE_TOKENS / PIECE][HEAD_SIZE / STEP];
  uint4 values[HEAD_PIECES];

  // Tokens past the end may be any; they are left out later.
  __device__ __forceinline__ void fetch(const Layer& layer, const Column& column, const TileBlocks& blocks) {
    fetch_keys(layer, column, blocks);
    fetch_values(layer, column, blocks);
  }

  __device__ __forceinline__ void fetch_keys(const Layer& layer, const Column& column, const TileBlocks& blocks) {
    const Place place;
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) {
      const Element* key =
          layer.key_cache + column.offset_of(blocks.of[j]) + (j * PIECE % BLOCK_SIZE + place.g) * PIECE;
#pragma unroll
      for (int s = 0; s < HEAD_SIZE / STEP; s++)
        keys[j][s] = load_in_order(key + (4 * s + place.q) * BLOCK_SIZE * PIECE);
    }
  }

  __device__ __forceinline__ void fetch_values(const Layer& layer, const Column& column, const TileBlocks& blocks) {
    const Place place;
    const int block =
        place.q < 2 ? (place.q ? blocks.of[1] : blocks.of[0]) : (place.q == 2 ? blocks.of[2] : blocks.of[3]);
    const Element* value =
        layer.value_cache + column.offset_of(block) + place.g * BLOCK_SIZE + place.q * PIECE % BLOCK_SIZE;
#pragma unroll
    for (int i = 0; i < HEAD_PIECES; i++) values[i] = load_in_order(value + i * PIECE * BLOCK_SIZE);
  }

  // Values of tokens past the end may be anything, NaN too, and zero times NaN is NaN.
  __device__ __forceinline__ void clear_values(int num_tokens) {
    const int first = Place().q * PIECE;
#pragma unroll
    for (int i = 0; i < HEAD_PIECES; i++) {
      uint32* words = reinterpret_cast<uint32*>(&values[i]);
#pragma unroll
      for (int w = 0; w < 4; w++) {
        const int token = first + 2 * w;
        words[w] &= (token < num_tokens ? 0x0000ffffu : 0u) | (token + 1 < num_tokens ? 0xffff0000u : 0u);
      }
    }
  }
};

// The first tile of each warp: asked for half a layer before its query is there. NOTE: without one there are zeros.
// What is not made anew in every layer has registers for all of it.
struct FirstTile {
  TileBlocks blocks;
  CachedTile tile;
  int index;
  bool exists;

  __device__ __forceinline__ explicit FirstTile(const Column& column) {
    index = column.split * SEAT_WARPS + column.warp_of(Place());
    exists = index * TILE_TOKENS < column.position;
    if (exists) blocks.look_up(column, index);
  }

  __device__ __forceinline__ void fetch_keys(const Layer& layer, const Column& column) {
    if (exists) {
      tile.fetch_keys(layer, column, blocks);
    } else {
#pragma unroll
      for (int i = 0; i < TILE_TOKENS / PIECE * (HEAD_SIZE / STEP); i++)
        tile.keys[i / (HEAD_SIZE / STEP)][i % (HEAD_SIZE / STEP)] = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void fetch_values(const Layer& layer, const Column& column) {
    if (exists) {
      tile.fetch_values(layer, column, blocks);
    } else {
#pragma unroll
      for (int i = 0; i < HEAD_PIECES; i++) tile.values[i] = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void fetch(const Layer& layer, const Column& column) {
    fetch_keys(layer, column);
    fetch_values(layer, column);
  }

  // Values on their way into the L2 cache.
  __device__ __forceinline__ void prefetch_values(const Layer& layer, const Column& column) const {
    constexpr int BLOCKS = larger(TILE_TOKENS / BLOCK_SIZE, 1), OF_BLOCK = TILE_TOKENS / PIECE / BLOCKS;
    const int lane = Place().lane;
    if (!exists || lane >= BLOCKS) return;
    int block = blocks.of[0];
#pragma unroll
    for (int b = 1; b < BLOCKS; b++)
      if (lane == b) block = blocks.of[b * OF_BLOCK];
    prefetch_bulk(layer.value_cache + column.offset_of(block), HEAD_SIZE * BLOCK_SIZE * sizeof(Element));
  }
};
