// Puts partial attentions of the same row together: first of the warps of a thread block, in shared memory, then of
// the thread blocks that share a sequence, through global memory.
//
// A partial is the state of the online softmax: the unnormalised output O, the largest score m (units of log2) and
// the sum of weights l. Two merge as O = O1 2^(m1 - m) + O2 2^(m2 - m) with m = max(m1, m2), l likewise
// (flash-decoding; Milakov & Gimelshein 2018, arXiv 1805.02867). The order of the sums is fixed, so the same
// input gives the same bits every time.

#pragma once

#include "attention/decode_tiles.cuh"
#include "common/dependent_launch.cuh"

#ifndef NUM_WARPS
#define NUM_WARPS 4
#endif
constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;
constexpr int OUTPUT_STRIDE = HEAD_SIZE + 4;  // floats between rows in shared memory; no bank conflicts
constexpr int ROW_PIECES = HEAD_SIZE / 4;     // float4 pieces of a row

// Rows that a thread block has registers and shared memory for.
constexpr int MAX_ROWS = 2048 / HEAD_SIZE / 8 * 8 > 32 ? 32 : 2048 / HEAD_SIZE / 8 * 8;

// Where finished rows go.
struct RowOutput {
  Element* output;  // [head_size]
  float* lse;       // one number, or null
  float sink;       // as `load_sink` gives it
};

// A run of four dimensions of a row, with the row's state.
struct Piece {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  SoftmaxState state;

  __device__ __forceinline__ void merge(const Piece& other) {
    const float mine = state.raise(other.state.m);
    const float its = exp2_below(other.state.m, state.m);
    sum.x = sum.x * mine + other.sum.x * its;
    sum.y = sum.y * mine + other.sum.y * its;
    sum.z = sum.z * mine + other.sum.z * its;
    sum.w = sum.w * mine + other.sum.w * its;
    state.l += other.state.l * its;
  }

  __device__ __forceinline__ void add_sink(float sink) {
    const float factor = state.add_sink(sink);
    sum = make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
  }
};

__device__ __forceinline__ void write_piece(const RowOutput& row, int index, Piece piece) {
  if (SINKS) piece.add_sink(row.sink);
  const float inverse = piece.state.inverse_sum();
  uint2 packed;
  packed.x = pack_pair<Element>(piece.sum.x * inverse, piece.sum.y * inverse);
  packed.y = pack_pair<Element>(piece.sum.z * inverse, piece.sum.w * inverse);
  reinterpret_cast<uint2*>(row.output)[index] = packed;
  if (row.lse != nullptr && index == 0) *row.lse = piece.state.log_sum_exp();
}

// What the warps of a thread block share.
template <int ROWS_STORED, int ROWS>
struct BlockShared {
  static constexpr int MOST_PIECES = ROWS_STORED * ROW_PIECES;
  static constexpr int SHARERS = NUM_THREADS < MOST_PIECES ? 1 : NUM_THREADS / MOST_PIECES;

  union OfWarp {
    Operand weights[ROWS * WEIGHT_STRIDE];  // this warp's alone, before
    float output[ROWS_STORED * OUTPUT_STRIDE];
  };
  struct Share {  // a Piece
    float4 sum;
    float m, l;
  };
  union {
    OfWarp warps[NUM_WARPS];
    Share shares[SHARERS == 1 ? 1 : NUM_THREADS];  // behind a barrier after that, `merge_parts`
  };
  float top[NUM_WARPS][ROWS];
  float total[NUM_WARPS][ROWS];
  int is_last;
};

// Lays the warps' states side by side, each to its own reference. Ends in a barrier.
template <int ROWS_STORED, int ROW_TILES>
__device__ __forceinline__ void share_states(const DecodeWarp<ROW_TILES>& warp,
                                             BlockShared<ROWS_STORED, 8 * ROW_TILES>& shared) {
  const int index = threadIdx.x / WARP_SIZE;
  __syncwarp();  // nobody reads the warp's `weights` any more
#pragma unroll
  for (int t = 0; t < ROW_TILES; t++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int row = 8 * t + 2 * warp.q + e;
      if (warp.g == 0) {  // all g hold the same
        shared.top[index][row] = warp.top[t][e];
        shared.total[index][row] = warp.total[t][e];
      }
      if (row >= ROWS_STORED) continue;
      float* to = shared.warps[index].output + row * OUTPUT_STRIDE + warp.g;
#pragma unroll
      for (int d = 0; d < DIM_TILES; d++) {
        to[16 * d] = warp.output[d][t][e];
        to[16 * d + 8] = warp.output[d][t][e + 2];
      }
    }
  }
  __syncthreads();
}

// Sum over the warps of the `index`-th piece of a row.
template <int ROWS_STORED, int ROWS>
__device__ __forceinline__ Piece block_piece(const BlockShared<ROWS_STORED, ROWS>& shared, int row, int index) {
  Piece piece;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) piece.state.m = fmaxf(piece.state.m, shared.top[w][row]);
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) {
    const float factor = exp2_below(shared.top[w][row], piece.state.m);
    const float* part = shared.warps[w].output + row * OUTPUT_STRIDE + 4 * index;
    const float4 sum = *reinterpret_cast<const float4*>(part);
    piece.state.l += shared.total[w][row] * factor;
    piece.sum.x += sum.x * factor;
    piece.sum.y += sum.y * factor;
    piece.sum.z += sum.z * factor;
    piece.sum.w += sum.w * factor;
  }
  return piece;
}

// Partial states in global memory, of each row as many as it has parts. `slot` is token * num_heads + head.
struct Partials {
  float* output;  // [num_tokens, num_heads, max_parts, head_size]
  float2* state;  // [num_tokens, num_heads, max_parts]: m, l
  int max_parts;

  // Past L1, which the other thread blocks do not see.
  __device__ __forceinline__ void store(int slot, int part, int index, const Piece& piece) const {
    const int64 place = static_cast<int64>(slot) * max_parts + part;
    __stcg(reinterpret_cast<float4*>(output + place * HEAD_SIZE) + index, piece.sum);
    if (index == 0) __stcg(state + place, make_float2(piece.state.m, piece.state.l));
  }

  __device__ __forceinline__ Piece load(int slot, int part, int index) const {
    const int64 place = static_cast<int64>(slot) * max_parts + part;
    Piece piece;
    const float2 loaded = __ldcg(state + place);
    piece.sum = __ldcg(reinterpret_cast<const float4*>(output + place * HEAD_SIZE) + index);
    piece.state.m = loaded.x;
    piece.state.l = loaded.y;
    return piece;
  }

  // Every `step`-th part from `first` on, below `end`.
  template <int PARTS>
  __device__ __forceinline__ void take(Piece (&taken)[PARTS], int slot, int first, int step, int end,
                                       int index) const {
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
      if (first + k * step < end) taken[k] = load(slot, first + k * step, index);
    }
  }
};

constexpr int PARTS_AT_ONCE = 8;  // under way: each time takes as long as an answer of the L2 cache

// Merges the `num_parts` parts of `num_rows` rows and writes them; `output_of(row)` says where to, `slot_of(row)`
// where from. All threads of the thread block take part, behind a barrier: where they are more than there are
// pieces, several merge every so many-th part of one piece, and the first of them puts that together.
template <int ROWS_STORED, int ROWS, typename Parts, typename SlotOf, typename OutputOf>
__device__ __forceinline__ void merge_parts(BlockShared<ROWS_STORED, ROWS>& shared, const Parts& parts,
                                            int num_parts, int num_rows, SlotOf slot_of, OutputOf output_of) {
  constexpr int SHARERS = BlockShared<ROWS_STORED, ROWS>::SHARERS,
                MOST_PIECES = BlockShared<ROWS_STORED, ROWS>::MOST_PIECES;
  const int num_pieces = num_rows * ROW_PIECES;
  const int sharer = SHARERS == 1 ? 0 : threadIdx.x / MOST_PIECES;
  const int first = SHARERS == 1 ? threadIdx.x : threadIdx.x % MOST_PIECES;
  for (int done = 0; done < num_pieces; done += NUM_THREADS) {  // lanes of a warp stay together
    const int i = done + first;
    const bool works = sharer < SHARERS && i < num_pieces;
    const int row = works ? i / ROW_PIECES : 0, index = i % ROW_PIECES;
    Piece merged;
    for (int part = 0; part < num_parts; part += PARTS_AT_ONCE * SHARERS) {
      Piece taken[PARTS_AT_ONCE];
      parts.take(taken, slot_of(row), part + sharer, SHARERS, works ? num_parts : 0, index);
#pragma unroll
      for (int k = 0; k < PARTS_AT_ONCE; k++) merged.merge(taken[k]);
    }
    if (!works) continue;
    if (SHARERS == 1) {
      write_piece(output_of(row), index, merged);
    } else {
      shared.shares[threadIdx.x] = {merged.sum, merged.state.m, merged.state.l};
    }
  }
  if (SHARERS == 1) return;
  __syncthreads();
  if (threadIdx.x >= num_pieces) return;
  Piece merged;
#pragma unroll
  for (int s = 0; s < SHARERS; s++) {
    const auto& share = shared.shares[s * MOST_PIECES + threadIdx.x];
    Piece other;
    other.sum = share.sum;
    other.state.m = share.m;
    other.state.l = share.l;
    merged.merge(other);
  }
  write_piece(output_of(threadIdx.x / ROW_PIECES), threadIdx.x % ROW_PIECES, merged);
}
