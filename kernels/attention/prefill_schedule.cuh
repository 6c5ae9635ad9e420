// Which work a thread block of a prefill kernel does: one tile of query rows of one sequence and one KV head.
//
// A *row* is one query head of one token. The heads of a KV group are packed: row r of a sequence is head
// r % GROUP_SIZE of its token r / GROUP_SIZE, so one tile of K and V serves all of them, and a chunk of a few
// tokens still fills a tile of a model with grouped heads.
//
// The grid is as large as the batch can need, which the host knows from sizes alone; who does what is read on the
// device, so a launch in a CUDA graph follows the lengths. Causal rows get longer toward the end of a chunk: the
// longest come first and the short ones fill the gaps at the end.

#pragma once

#include "common/common.cuh"

struct QueryTile {
  int sequence;   // -1: nothing to do
  int first_row;  // of the sequence's rows
  int num_rows;   // of the sequence, not of the tile
};

// Thread blocks that hold one tile each; at least as many as the batch can need.
//   num_tiles = total_rows / ROWS + num_seqs
// All lanes of a warp call it together and get the same answer.
template <int ROWS>
__device__ __forceinline__ QueryTile find_query_tile(const int* cu_seqlens_q, int num_seqs, int tile) {
  const int lane = threadIdx.x % WARP_SIZE;
  for (int base = 0; base < num_seqs; base += WARP_SIZE) {
    const int sequence = base + lane;
    const int num_tokens = sequence < num_seqs ? cu_seqlens_q[sequence + 1] - cu_seqlens_q[sequence] : 0;
    const int tiles = ceil_div(num_tokens * GROUP_SIZE, ROWS);
    int end = tiles;  // tiles up to and with this lane's sequence
#pragma unroll
    for (int step = 1; step < WARP_SIZE; step *= 2) {
      const int before = __shfl_up_sync(FULL_WARP, end, step);
      if (lane >= step) end += before;
    }
    const uint32 beyond = __ballot_sync(FULL_WARP, end > tile);
    if (beyond != 0) {
      const int owner = __ffs(beyond) - 1;
      const int last_first = __shfl_sync(FULL_WARP, end, owner) - 1 - tile;  // counted from the sequence's end
      return {base + owner, last_first * ROWS, __shfl_sync(FULL_WARP, num_tokens, owner) * GROUP_SIZE};
    }
    tile -= __shfl_sync(FULL_WARP, end, WARP_SIZE - 1);
  }
  return {-1, 0, 0};
}

// Tiles of keys, `begin` to `end` - 1.
struct KeyRange {
  int begin, end;
};

// What queries at positions `first` to `last` see of a causal context under a sliding window (2^31 - 1: all of it).
template <int KEYS>
__device__ __forceinline__ KeyRange seen_tiles(int first, int last, int sliding_window) {
  return {max(0, first - sliding_window + 1) / KEYS, last < 0 ? 0 : last / KEYS + 1};
}

// The part of a range that falls to one of several thread blocks.
__device__ __forceinline__ KeyRange split_range(KeyRange whole, int split, int num_splits) {
  const int share = ceil_div(whole.end - whole.begin, num_splits);
  return {whole.begin + split * share, min(whole.begin + (split + 1) * share, whole.end)};
}

// The part `part` of a range, where every part has TILES tiles counted from tile 0.
template <int TILES>
__device__ __forceinline__ KeyRange part_range(KeyRange whole, int part) {
  return {max(whole.begin, part * TILES), min(whole.end, (part + 1) * TILES)};
}
