// Attention within streamed_layers.cu: a thread block for each token, KV head and split; a warp for every so
// many-th tile of 32 cached tokens (decode_tiles.cuh). The states of their softmaxes meet in shared memory (Milakov
// and Gimelshein 2018, arXiv 1805.02867).

#pragma once

#include "all_layers/layer_inputs.cuh"
#include "all_layers/layer_marks.cuh"
#include "attention/scores.cuh"
#include "common/activation.cuh"

constexpr int LANE_WORDS = HEAD_SIZE / 2 / WARP_SIZE;  // of a vector

// What a task knows of its token and KV head for all layers, once, into shared memory: registers are for weights.
__device__ __forceinline__ void look_up_context(Context& context, const Task& task, const int* positions,
                                                const int* block_table, const float2* rotations, int64 key_stride,
                                                int64 value_stride) {
  const int thread = Place().thread, position = positions[task.token];
  if (thread == 0) {
    const int end = max(position + 1, 0), tiles = ceil_div(end, TILE_TOKENS), of_split = ceil_div(tiles, SPLITS);
    const int first_tile = task.split * of_split, end_tile = min(first_tile + of_split, tiles);
    const int64 block = position >= 0 ? block_table[position / BLOCK_SIZE] : 0;
    const int slot = max(position, 0) % BLOCK_SIZE;
    context.head = static_cast<int64>(task.kv_head) * HEAD_SIZE * BLOCK_SIZE;
    context.new_key = block * key_stride + context.head + slot * 8;
    context.new_value = block * value_stride + context.head + slot;
    context.end = end, context.first_tile = first_tile, context.end_tile = end_tile;
    context.has_new = position >= 0 && first_tile < end_tile && end_tile == tiles;
  }
#if ROTARY
  if (thread < HEAD_SIZE) {
    const int half = thread % (HEAD_SIZE / 2);
    context.turn[thread] = rotations[static_cast<int64>(max(position, 0)) * (HEAD_SIZE / 2) + half];
  }
#endif
}

// A vector of a head in a warp: lane l has elements 2l and 2l + 1, and the same of every 64 behind them.
struct HeadVector {
  float values[LANE_WORDS][2];

  __device__ __forceinline__ void load(const Element* from) {
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) {
      const int dim = (w * WARP_SIZE + Place().lane) * 2;
      values[w][0] = to_float(from[dim]), values[w][1] = to_float(from[dim + 1]);
    }
  }

  __device__ __forceinline__ void collect(const Element* from) {
    uint32 words[LANE_WORDS][1];
    await_words<LANE_WORDS, 1>(words, from + 2 * Place().lane, 2 * WARP_SIZE);
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) unpack_pair<Element>(words[w][0], values[w][0], values[w][1]);
  }

  // Behind a norm by itself, of weights that lie as the vector does.
  __device__ __forceinline__ void normalise(const HeadVector& scales, float epsilon) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) sum += values[w][0] * values[w][0] + values[w][1] * values[w][1];
    const float factor = rsqrtf(warp_sum(sum) / HEAD_SIZE + epsilon);
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        values[w][e] = rounded(scaled_by_norm<HEAD_NORM>(values[w][e] * factor, scales.values[w][e], 0.0f));
      }
    }
  }

  // Turned by the angles of its position: elements half a head apart.
  __device__ __forceinline__ void rotate(const float2 (&turns)[HEAD_SIZE]) {
    const bool is_upper = LANE_WORDS == 1 && Place().lane >= WARP_SIZE / 2;
    float turned[LANE_WORDS][2];
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float other = LANE_WORDS == 1 ? __shfl_xor_sync(FULL_WARP, values[w][e], WARP_SIZE / 2)
                                            : values[(w + LANE_WORDS / 2) % LANE_WORDS][e];
        const float sign = is_upper || (LANE_WORDS > 1 && w >= LANE_WORDS / 2) ? 1.0f : -1.0f;
        const float2 turn = turns[(w * WARP_SIZE + Place().lane) * 2 + e];
        turned[w][e] = values[w][e] * turn.x + sign * other * turn.y;
      }
    }
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) values[w][0] = turned[w][0], values[w][1] = turned[w][1];
  }

  __device__ __forceinline__ uint32 word(int w) const { return pack_pair<Element>(values[w][0], values[w][1]); }
};

// Queries of a KV head, normed and turned, into shared memory, and the new key and value into the cache. Ends in a
// barrier, behind which both are there for the thread block.
__device__ __forceinline__ void collect_vectors(Shared& shared, const Layer& layer, const Task& task,
                                                const Published& published, float head_epsilon) {
  const Place place;
  const Context& context = shared.context;
  const Element* row = published.qkv() + task.token * QKV_ROWS;
#pragma unroll 1
  for (int v = place.warp; v < VECTORS; v += NUM_WARPS) {
    const bool is_value = v == GROUP_SIZE + 1, is_query = v < GROUP_SIZE;
    const int head =
        is_query ? task.kv_head * GROUP_SIZE + v : NUM_HEADS + (v - GROUP_SIZE) * NUM_KV_HEADS + task.kv_head;
    HeadVector vector;
#if HEAD_NORM
    HeadVector scales;
    scales.load(is_query ? layer.query_norm : layer.key_norm);  // before the vector is there
#endif
    vector.collect(row + head * HEAD_SIZE);
    if (!is_value) {
#if HEAD_NORM
      vector.normalise(scales, head_epsilon);
#endif
#if ROTARY
      vector.rotate(context.turn);
#endif
    }
#pragma unroll
    for (int w = 0; w < LANE_WORDS; w++) {
      const int dim = (w * WARP_SIZE + place.lane) * 2;
      const uint32 word = vector.word(w);
      if (is_query) {
        *reinterpret_cast<uint32*>(&shared.vectors[v][dim]) = word;
      } else if (context.has_new && is_value) {
        Element* to = layer.value_cache + context.new_value + dim * BLOCK_SIZE;
        to[0] = from_float<Element>(vector.values[w][0]);
        to[BLOCK_SIZE] = from_float<Element>(vector.values[w][1]);
      } else if (context.has_new) {
        Element* to = layer.key_cache + context.new_key + dim / 8 * BLOCK_SIZE * 8 + dim % 8;
        *reinterpret_cast<uint32*>(to) = word;
      }
    }
  }
  __threadfence_block();
  sync_warps();
}

// The states of all warps put together and published; a thread has two elements of a head at a time. `warp`s have
// left theirs in shared memory.
__device__ __forceinline__ void publish_attended(Shared& shared, const Task& task, const Published& published) {
  const Place place;
  constexpr int WORDS = HEAD_SIZE / 2;
#pragma unroll 1
  for (int i = place.thread; i < GROUP_SIZE * WORDS; i += NUM_THREADS) {
    const int row = i / WORDS, dim = i % WORDS * 2;
    float highest = NEGATIVE_INFINITY, all = 0.0f;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) highest = fmaxf(highest, shared.top[w][row]);
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) {
      const float weight = exp2_below(shared.top[w][row], highest);
      const float2 part = *reinterpret_cast<const float2*>(&attention_memory(shared).output[w][row][dim]);
      all += weight * shared.total[w][row];
      sum.x += weight * part.x, sum.y += weight * part.y;
    }
    const float inverse = all > 0.0f ? 1.0f / all : 0.0f;
    const uint32 word = pack_pair<Element>(sum.x * inverse, sum.y * inverse);
    const int head = task.kv_head * GROUP_SIZE + row;
    const int at = Published::ATTENDED_AT + task.row() * Order<OUT>::PADDED + head * HEAD_SIZE + dim;
    publish_copies(published, at, word, false);
    publish_copies(published, at, word, true);
    if (SPLITS > 1 && dim == 0) {
#pragma unroll 1
      for (int copy = 0; copy < COPIES; copy++) {
        publish(published.lse(copy, task.row()) + head, __float_as_uint(highest + log2f(all)));
      }
    }
  }
}

// A task in a layer.
__device__ __forceinline__ void attend(Shared& shared, const Layer& layer, const Task& task, const int* block_table,
                                       int max_blocks, const Published& published, int64 key_stride,
                                       int64 value_stride, float scale, float head_epsilon) {
  const Place place;
  const Context& context = shared.context;
  const PagedContext paged{layer.key_cache + context.head,
                           layer.value_cache + context.head,
                           key_stride,
                           value_stride,
                           block_table,
                           max_blocks,
                           0,
                           context.end};
  const int tile = context.first_tile + place.warp;
  DecodeWarp<ROW_TILES> warp;
  warp.read_table(block_table, max_blocks, tile);
  collect_vectors(shared, layer, task, published, head_epsilon);
  warp.load_query([&](int row) -> const Element* { return row < GROUP_SIZE ? shared.vectors[row] : nullptr; });
  warp.attend(paged, ScoreScale(scale, 0.0f), tile, context.end_tile, NUM_WARPS,
              attention_memory(shared).weights[place.warp]);
  warp.finish();
#pragma unroll
  for (int t = 0; t < ROW_TILES; t++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int row = 8 * t + 2 * place.q + e;
      if (row >= GROUP_SIZE) continue;
      if (place.g == 0)
        shared.top[place.warp][row] = warp.top[t][e], shared.total[place.warp][row] = warp.total[t][e];
      float* to = attention_memory(shared).output[place.warp][row] + place.g;
#pragma unroll
      for (int d = 0; d < DIM_TILES; d++) {
        to[16 * d] = warp.output[d][t][e];
        to[16 * d + 8] = warp.output[d][t][e + 2];
      }
    }
  }
  sync_warps();
  publish_attended(shared, task, published);
}
