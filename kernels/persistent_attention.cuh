// The attention of persistent_decode.cu: a thread block for each token, KV head and split. A lane scores a cached
// token and weighs two dimensions; the states of the softmax meet in shared memory (Milakov and Gimelshein 2018,
// arXiv 1805.02867).

#pragma once

#include "attention_scores.cuh"
#include "online_softmax.cuh"
#include "persistent_products.cuh"

// The keys and values of a token, KV head and split.
struct Column {
  int token, kv_head, split;
  int position;  // of the new token; below 0: padding
  const int* block_table;

  __device__ __forceinline__ Column(const int* positions, const int* block_tables, int max_blocks) {
    const int index = blockIdx.x;
    token = index / (SPLITS * NUM_KV_HEADS), kv_head = index / SPLITS % NUM_KV_HEADS, split = index % SPLITS;
    position = positions[token];
    block_table = block_tables + static_cast<int64>(token) * max_blocks;
  }

  // In elements, from the beginning of a layer's key or value cache.
  __device__ __forceinline__ int64 offset_of(int block) const {
    return (static_cast<int64>(block) * NUM_KV_HEADS + kv_head) * HEAD_SIZE * BLOCK_SIZE;
  }
};

// The blocks that a lane reads a tile of 32 tokens from; tokens past the end are those of the last block.
struct TileBlocks {
  int of_key, of_values[TILE_TOKENS / PIECE];

  __device__ __forceinline__ void look_up(const Column& column, int tile) {
    const int last = max(column.position - 1, 0), first = tile * TILE_TOKENS;
    of_key = column.block_table[min(first + Place().lane, last) / BLOCK_SIZE];
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) {
      of_values[j] = column.block_table[min(first + j * PIECE, last) / BLOCK_SIZE];
    }
  }
};

// 32 cached tokens of a warp. The key of one of them for each lane; two dimensions of all values: lane and lane
// + 32.
struct CachedTile {
  uint4 keys[HEAD_PIECES];
  uint4 values[2][TILE_TOKENS / PIECE];

  // Tokens past the end may be any; they are left out later.
  __device__ __forceinline__ void fetch(const Layer& layer, const Column& column, const TileBlocks& blocks) {
    const Place place;
    const Element* key = layer.key_cache + column.offset_of(blocks.of_key) + place.lane % BLOCK_SIZE * PIECE;
#pragma unroll
    for (int i = 0; i < HEAD_PIECES; i++) keys[i] = load_in_order(key + i * BLOCK_SIZE * PIECE);
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) {
      const Element* value = layer.value_cache + column.offset_of(blocks.of_values[j]) + place.lane * BLOCK_SIZE +
                             j * PIECE % BLOCK_SIZE;
      values[0][j] = load_in_order(value);
      values[1][j] = load_in_order(value + 32 * BLOCK_SIZE);
    }
  }

  // Values of tokens past the end may be anything, NaN too, and zero times NaN is NaN.
  __device__ __forceinline__ void clear_values(int num_tokens) {
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) {
#pragma unroll
      for (int d = 0; d < 2; d++) {
        uint32* words = reinterpret_cast<uint32*>(&values[d][j]);
#pragma unroll
        for (int w = 0; w < 4; w++) {
          const int token = j * PIECE + 2 * w;
          words[w] &= (token < num_tokens ? 0x0000ffffu : 0u) | (token + 1 < num_tokens ? 0xffff0000u : 0u);
        }
      }
    }
  }

  __device__ __forceinline__ float score(const float* query) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HEAD_PIECES; i++) {
      float values[PIECE];
      unpack(keys[i], values);
#pragma unroll
      for (int d = 0; d < PIECE; d++) sum += values[d] * query[i * PIECE + d];
    }
    return sum;
  }

  // Sums of the values of dimension lane + 32 * `d`, `weights` one for each token.
  __device__ __forceinline__ float weigh(const float* weights, int d) const {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) {
      float elements[PIECE];
      unpack(values[d][j], elements);
#pragma unroll
      for (int i = 0; i < PIECE; i++) sum += elements[i] * weights[j * PIECE + i];
    }
    return sum;
  }
};

// Queries, new key and new value of a column into shared memory, rotated, queries scaled. Ends in a barrier.
__device__ __forceinline__ void collect_vectors(Shared& shared, const Published& published, const Column& column,
                                                const float2* rotations, float scale) {
  const Place place;
  const Element* row = published.qkv() + static_cast<int64>(column.token) * QKV_ROWS;
  for (int i = place.thread; i < (GROUP_SIZE + 2) * HEAD_SIZE / 2; i += NUM_THREADS) {
    const int vector = i / (HEAD_SIZE / 2), dim = i % (HEAD_SIZE / 2) * 2;
    const int head = vector < GROUP_SIZE ? column.kv_head * GROUP_SIZE + vector
                                         : NUM_HEADS + (vector - GROUP_SIZE) * NUM_KV_HEADS + column.kv_head;
    uint32 word[1][1];
    await_words<1, 1>(word, row + head * HEAD_SIZE + dim, 0);
    *reinterpret_cast<uint32*>(&shared.vectors[vector][dim]) = word[0][0];
    float x, y;
    unpack_pair<Element>(word[0][0], x, y);
    if (!ROTARY && vector < GROUP_SIZE) {
      shared.query[vector][dim] = x * scale, shared.query[vector][dim + 1] = y * scale;
    }
  }
  sync_warps();
#if ROTARY
  constexpr int HALF = HEAD_SIZE / 2;
  for (int i = place.thread; i < (GROUP_SIZE + 1) * HALF; i += NUM_THREADS) {
    Element* vector = shared.vectors[i / HALF];
    const int dim = i % HALF;
    const float2 turn = rotations[static_cast<int64>(max(column.position, 0)) * HALF + dim];
    const float x = to_float(vector[dim]), y = to_float(vector[dim + HALF]);
    vector[dim] = from_float<Element>(x * turn.x - y * turn.y);
    vector[dim + HALF] = from_float<Element>(y * turn.x + x * turn.y);
    if (i / HALF < GROUP_SIZE) {
      shared.query[i / HALF][dim] = to_float(vector[dim]) * scale;
      shared.query[i / HALF][dim + HALF] = to_float(vector[dim + HALF]) * scale;
    }
  }
  sync_warps();
#endif
}

// The new key and value to the place in the cache that the next steps read them from.
__device__ __forceinline__ void write_cache(const Shared& shared, const Layer& layer, const Column& column) {
  const Place place;
  if (column.position < 0 || place.thread >= HEAD_SIZE) return;
  const int64 block = column.offset_of(column.block_table[column.position / BLOCK_SIZE]);
  const int slot = column.position % BLOCK_SIZE, dim = place.thread;
  layer.key_cache[block + (dim / PIECE * BLOCK_SIZE + slot) * PIECE + dim % PIECE] =
      shared.vectors[GROUP_SIZE][dim];
  layer.value_cache[block + dim * BLOCK_SIZE + slot] = shared.vectors[GROUP_SIZE + 1][dim];
}

// The warp's share of a column's cached tokens, its first tile being in `tile`; states go to shared memory.
__device__ __forceinline__ void attend_cached(Shared& shared, const Layer& layer, const Column& column,
                                              CachedTile& tile) {
  const Place place;
  const int end = max(column.position, 0);
  if (place.lane < GROUP_SIZE) shared.state[place.warp][place.lane] = make_float2(NEGATIVE_INFINITY, 0.0f);
  for (int i = place.lane; i < GROUP_SIZE * HEAD_SIZE; i += WARP_SIZE) (&shared.output[place.warp][0][0])[i] = 0.0f;
  __syncwarp();
#pragma unroll 1
  for (int index = column.split * NUM_WARPS + place.warp; index * TILE_TOKENS < end; index += SPLITS * NUM_WARPS) {
    const int num_tokens = end - index * TILE_TOKENS;
    if (num_tokens < TILE_TOKENS) tile.clear_values(num_tokens);
#pragma unroll 1
    for (int row = 0; row < GROUP_SIZE; row++) {
      const float score = place.lane < num_tokens ? tile.score(shared.query[row]) : NEGATIVE_INFINITY;
      const float2 before = shared.state[place.warp][row];
      const float highest = fmaxf(warp_max(score), before.x), keep = exp2_below(before.x, highest);
      const float weight = exp2_below(score, highest);
      shared.weights[place.warp][place.lane] = weight;
      const float sum = before.y * keep + warp_sum(weight);
      __syncwarp();
      float* output = shared.output[place.warp][row] + place.lane;
      output[0] = output[0] * keep + tile.weigh(shared.weights[place.warp], 0);
      output[32] = output[32] * keep + tile.weigh(shared.weights[place.warp], 1);
      if (place.lane == 0) shared.state[place.warp][row] = make_float2(highest, sum);
      __syncwarp();
    }
    if ((index + SPLITS * NUM_WARPS) * TILE_TOKENS < end) {
      TileBlocks blocks;
      blocks.look_up(column, index + SPLITS * NUM_WARPS);
      tile.fetch(layer, column, blocks);
    }
  }
}

// Scores of the new token itself, which is not read from the cache.
__device__ __forceinline__ void score_new(Shared& shared) {
  const Place place;
  if (place.warp >= GROUP_SIZE) return;
  const Element* key = shared.vectors[GROUP_SIZE];
  const float* query = shared.query[place.warp];
  const float sum = warp_sum(to_float(key[place.lane]) * query[place.lane] +
                             to_float(key[place.lane + 32]) * query[place.lane + 32]);
  if (place.lane == 0) shared.new_score[place.warp] = sum;
}

// The states of all warps and the new token put together, one warp for each row and copy, and published.
__device__ __forceinline__ void publish_attended(Shared& shared, const Published& published, const Column& column,
                                                 int64 to_other) {
  const Place place;
  if (place.warp >= GROUP_SIZE * COPIES) return;
  const int row = place.warp % GROUP_SIZE, copy = place.warp / GROUP_SIZE, dim = 2 * place.lane,
            head = column.kv_head * GROUP_SIZE + row;
  const bool with_new = column.split == 0 && column.position >= 0;
  const float2 state =
      place.lane < NUM_WARPS ? shared.state[place.lane][row] : make_float2(NEGATIVE_INFINITY, 0.0f);
  const float new_score = with_new ? shared.new_score[row] : NEGATIVE_INFINITY;
  const float highest = fmaxf(warp_max(state.x), new_score);
  const float factor = exp2_below(state.x, highest), new_weight = exp2_below(new_score, highest);
  const float all = warp_sum(state.y * factor) + new_weight;
  float x = 0.0f, y = 0.0f;
  if (with_new) {
    x = new_weight * to_float(shared.vectors[GROUP_SIZE + 1][dim]);
    y = new_weight * to_float(shared.vectors[GROUP_SIZE + 1][dim + 1]);
  }
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) {
    const float its = __shfl_sync(FULL_WARP, factor, w);
    const float2 part = *reinterpret_cast<const float2*>(&shared.output[w][row][dim]);
    x += its * part.x, y += its * part.y;
  }
  const float inverse = all > 0.0f ? 1.0f / all : 0.0f;
  const int part = column.token * SPLITS + column.split;
  Element* to = published.attended(copy) + part * ATTENDED + head * HEAD_SIZE + dim;
  publish(reinterpret_cast<uint32*>(to), pack_pair<Element>(x * inverse, y * inverse));
  mark_not_there(reinterpret_cast<uint32*>(to + to_other));
  if (SPLITS > 1 && place.lane == 0) {
    uint32* lse = reinterpret_cast<uint32*>(published.lse(copy) + part * LSE_STRIDE + head);
    publish(lse, __float_as_uint(highest + log2f(all)));
    mark_not_there(lse + to_other / PAIR);
  }
}

// What comes after the first tiles of a column, on its way into the L2 cache: there is time for it between layers.
__device__ __forceinline__ void prefetch_rest(const Layer& layer, const Column& column) {
  constexpr int BYTES = HEAD_SIZE * BLOCK_SIZE * sizeof(Element), TURN = SPLITS * NUM_WARPS * TILE_TOKENS;
  for (int token = TURN + Place().thread * BLOCK_SIZE; token < column.position; token += NUM_THREADS * BLOCK_SIZE) {
    if (token / TILE_TOKENS / NUM_WARPS % SPLITS != column.split) continue;
    const int64 offset = column.offset_of(column.block_table[token / BLOCK_SIZE]);
    prefetch_bulk(layer.key_cache + offset, BYTES);
    prefetch_bulk(layer.value_cache + offset, BYTES);
  }
}

// The layers of a thread block that attends: its column, then its share of the middle. Keys and values are asked
// for half a layer before the query is there.
__device__ __forceinline__ void attend_layers(Shared& shared, Element* memory, const Column& column,
                                              const float2* rotations, int num_layers, float scale, float epsilon,
                                              int64 to_other) {
  const int first_tile = column.split * NUM_WARPS + Place().warp;
  const bool has_tile = first_tile * TILE_TOKENS < column.position;
  TileBlocks blocks;
  CachedTile tile;
  if (has_tile) {
    blocks.look_up(column, first_tile);
    tile.fetch(shared.layers[0], column, blocks);
  }
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    const Published published(memory, l);
    collect_vectors(shared, published, column, rotations, scale * LOG2_E);
    if (column.split == 0) score_new(shared);
    attend_cached(shared, shared.layers[l], column, tile);
    sync_warps();
    publish_attended(shared, published, column, to_other);
    if (column.split == 0) write_cache(shared, shared.layers[l], column);
    if (l + 1 < num_layers) {
      if (has_tile) tile.fetch(shared.layers[l + 1], column, blocks);
      prefetch_rest(shared.layers[l + 1], column);
    }
    // Its barriers also keep the next layer from overwriting what this one has left in shared memory.
    produce_into(shared, published, 1, l % 2, epsilon, to_other,
                 [&] { collect<HIDDEN>(shared, published.stream(my_copy(), 0)); });
  }
}
