// What a warp of each thread block does beside the others: marks the places of layers to come as not there yet, and
// asks for what the next layer reads besides weights.

#pragma once

#include "all_layers/layer_memory.cuh"
#include "common/bulk_copy.cuh"

// All that the thread block publishes in a layer, listed once by one lane; how many runs there are.
__device__ __forceinline__ int list_runs(Shared& shared, const Share& share, const Task& task) {
  int num_runs = 0;
  if (threadIdx.x % WARP_SIZE == 0) {
    const auto list = [&](int at, int count) {
      if (count > 0) shared.runs[num_runs++] = {at, count};
    };
#pragma unroll 1
    for (int t = 0; t < TOKENS; t++) {
      const int heads = COPIES * Published::COPY + t * QKV_ROWS;
      list(heads + share.first_head_row(QKV), share.num_qkv * UNIT);
      if (VALUES_APART) list(heads + share.first_head_row(VALUES), share.num_values * UNIT);
    }
#pragma unroll 1
    for (int i = 0; i < COPIES * TOKENS; i++) {
      const int copy = i / TOKENS * Published::COPY, t = i % TOKENS;
      const int of_stream = t * Published::STREAM_ROW + share.first_stream * UNIT;
      list(copy + Published::HALFWAY_AT + of_stream, share.num_stream * UNIT);
      list(copy + Published::STREAM_AT + of_stream, share.num_stream * UNIT);
      list(copy + Published::MIDDLE_AT + t * Order<DOWN>::PADDED + share.first_up * UNIT / 2,
           share.num_up * UNIT / 2);
    }
#pragma unroll 1
    for (int i = 0; i < COPIES && task.exists(); i++) {
      constexpr int WIDTH = GROUP_SIZE * HEAD_SIZE;
      const int copy = i * Published::COPY;
      list(copy + Published::ATTENDED_AT + task.row() * Order<OUT>::PADDED + task.kv_head * WIDTH, WIDTH);
      if (SPLITS > 1) {
        const int state = task.row() * Published::LSE_STRIDE + task.kv_head * GROUP_SIZE;
        list(copy + Published::LSE_AT + 2 * state, 2 * GROUP_SIZE);
      }
    }
  }
  __syncwarp();
  return __shfl_sync(FULL_WARP, num_runs, 0);
}

// All of it not there yet, squares too.
__device__ __forceinline__ void mark_runs(const Shared& shared, int num_runs, const Share& share,
                                          const Published& published) {
#if !LAYER_KIND
  const int num_sums = ceil_div(share.num_stream, Published::UNITS_OF_SUM);
#pragma unroll 1
  for (int i = threadIdx.x % WARP_SIZE; i < 2 * COPIES * TOKENS * num_sums; i += WARP_SIZE) {
    const int row = i / num_sums, sum = blockIdx.x * Published::SUMS + i % num_sums;
    mark_not_there(published.squares(row / (2 * TOKENS), row / TOKENS % 2, row % TOKENS) + sum);
  }
#endif
#pragma unroll 1
  for (int r = 0; r < num_runs; r++) {
    const Run run = shared.runs[r];
#pragma unroll 1
    for (int i = threadIdx.x % WARP_SIZE * 2; i < run.count; i += 2 * WARP_SIZE) {
      mark_not_there(reinterpret_cast<uint32*>(published.memory + run.at + i));
    }
  }
}

// What a layer reads besides weights, on its way into the L2 cache: a small part of it by each thread block.
__device__ __forceinline__ void prefetch_layer(const Layer& layer, const Task& task, const int* block_table,
                                               int num_tokens, int64 key_stride, int64 value_stride) {
  constexpr uint32 ROW_BYTES = HIDDEN * sizeof(Element), BLOCK_BYTES = HEAD_SIZE * BLOCK_SIZE * sizeof(Element);
  const int lane = threadIdx.x % WARP_SIZE;
  if (blockIdx.x == 0 && lane < 2) prefetch_bulk(lane == 0 ? layer.attention_norm : layer.mlp_norm, ROW_BYTES);
  if (blockIdx.x == 1 && lane == 0 && layer.head_bias(QKV) != nullptr) {
    prefetch_bulk(layer.head_bias(QKV), FIRST_ROWS * sizeof(Element));
  }
  if (!task.exists()) return;
  const int64 head = static_cast<int64>(task.kv_head) * HEAD_SIZE * BLOCK_SIZE;
  const int share = ceil_div(ceil_div(num_tokens, TILE_TOKENS), SPLITS) * TILE_BLOCKS;  // blocks of a split
  const int end = min((task.split + 1) * share, ceil_div(num_tokens, BLOCK_SIZE));
  for (int i = task.split * share + lane; i < end; i += WARP_SIZE) {
    const int64 block = block_table[i];
    prefetch_bulk(layer.key_cache + block * key_stride + head, BLOCK_BYTES);
    prefetch_bulk(layer.value_cache + block * value_stride + head, BLOCK_BYTES);
  }
}
