// Which thread block of persistent_decode.cu does what in a layer.
//
// Without clusters the first NUM_COLUMNS thread blocks attend, one for each token, or each two of them (SEATS), KV
// head and split; all others make queries, keys and values, and the first of those a unit of the residual stream
// each.
//
// With clusters the first of them have a KV head each: all their thread blocks make its queries, keys and values,
// which go to the first SHARES of them from shared memory to shared memory, and those attend. The residual stream
// is made by who does not attend, thread blocks without a head first.

#pragma once

#include "whole_step/shapes.cuh"

#include "common/cluster.cuh"

__device__ __forceinline__ int block_index() { return static_cast<int>(blockIdx.x & 1023u); }
__device__ __forceinline__ int cluster_rank() { return block_index() % CLUSTER; }

__device__ __forceinline__ bool makes_qkv() {
  return IS_CLUSTERED ? block_index() < NUM_COLUMNS : block_index() >= NUM_COLUMNS;
}

__device__ __forceinline__ bool attends() {
  return block_index() < NUM_COLUMNS && (!IS_CLUSTERED || cluster_rank() < SHARES);
}

// The unit of the residual stream that the thread block makes, below 0: none.
__device__ __forceinline__ int stream_unit() {
  int index = block_index() - NUM_COLUMNS;
  if (IS_CLUSTERED && index < 0) {
    index = NUM_BLOCKS - NUM_COLUMNS + (CLUSTER - 1 - cluster_rank()) * NUM_KV_HEADS + block_index() / CLUSTER;
  }
  return attends() || index >= HIDDEN / UNIT ? -1 : index;
}

// Unit `u` of a product behind a norm: its first row, and whether the thread block has it.
struct Unit {
  int row;
  bool exists;

  __device__ __forceinline__ Unit(int half, int u) {
    if (half == 1) {
      const int own = GATED ? u / 2 : u, index = block_index() + own * NUM_BLOCKS;
      exists = own < MIDDLE_UNITS && index < MIDDLE / UNIT;
      row = index * UNIT + (GATED ? u % 2 * MIDDLE : 0);
    } else if (IS_CLUSTERED) {
      const int own = cluster_rank() * QKV_UNITS + u;
      exists = makes_qkv() && own < VECTORS * HEAD_SIZE / UNIT;
      row = head_of(block_index() / CLUSTER, own * UNIT / HEAD_SIZE) * HEAD_SIZE + own * UNIT % HEAD_SIZE;
    } else {
      const int index = block_index() - NUM_COLUMNS + u * NUM_PRODUCERS;
      exists = makes_qkv() && index < QKV_ROWS / UNIT;
      row = index * UNIT;
    }
  }

  // Among all query heads, key heads and value heads the one that is a KV head's vector `vector`: its queries, then
  // its key and its value.
  __device__ __forceinline__ static int head_of(int kv_head, int vector) {
    return vector < GROUP_SIZE ? kv_head * GROUP_SIZE + vector
                               : NUM_HEADS + (vector - GROUP_SIZE) * NUM_KV_HEADS + kv_head;
  }
};
