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
    sum = scaled(sum, mine);
    add_scaled(sum, other.sum, its);
    state.l += other.state.l * its;
  }

  // Of several at once: nobody waits for one after the other.
  template <int COUNT>
  __device__ __forceinline__ void merge(const Piece (&others)[COUNT]) {
    float highest = state.m;
#pragma unroll
    for (int k = 0; k < COUNT; k++) highest = fmaxf(highest, others[k].state.m);
    const float mine = state.raise(highest);
    sum = scaled(sum, mine);
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
      const float its = exp2_below(others[k].state.m, highest);
      add_scaled(sum, others[k].sum, its);
      state.l += others[k].state.l * its;
    }
  }

  // Of all pieces that lanes have whose numbers differ in the bits below LANES; all of those lanes get it.
  template <int LANES>
  __device__ __forceinline__ void merge_lanes() {
    if (LANES == 1) return;
    const float mine = state.m;
    state.m = warp_max<LANES / 2, 1>(mine);
    const float factor = exp2_below(mine, state.m);
    sum.x = warp_sum<LANES / 2, 1>(sum.x * factor);
    sum.y = warp_sum<LANES / 2, 1>(sum.y * factor);
    sum.z = warp_sum<LANES / 2, 1>(sum.z * factor);
    sum.w = warp_sum<LANES / 2, 1>(sum.w * factor);
    state.l = warp_sum<LANES / 2, 1>(state.l * factor);
  }

  __device__ __forceinline__ void add_sink(float sink) {
    const float factor = state.add_sink(sink);
    sum = scaled(sum, factor);
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
  static constexpr int THREADS_A_PIECE = NUM_THREADS / (ROWS_STORED * ROW_PIECES);
  static constexpr int SHARERS =  // neighbouring lanes that put a piece together
      THREADS_A_PIECE >= 8   ? 8
      : THREADS_A_PIECE >= 4 ? 4
      : THREADS_A_PIECE >= 2 ? 2
                             : 1;

  union OfWarp {
    Operand weights[ROWS * WEIGHT_STRIDE];  // this warp's alone, before
    float output[ROWS_STORED * OUTPUT_STRIDE];
  };
  OfWarp warps[NUM_WARPS];
  float top[NUM_WARPS][ROWS];
  float total[NUM_WARPS][ROWS];
#if CACHE_KIND
  float unit[NUM_WARPS];  // of `output`
#endif
  int is_last;
};

// Lays the warps' states side by side, each to its own reference. Ends in a barrier.
template <int ROWS_STORED, int ROW_TILES>
__device__ __forceinline__ void share_states(const DecodeWarp<ROW_TILES>& warp,
                                             BlockShared<ROWS_STORED, 8 * ROW_TILES>& shared) {
  const int index = threadIdx.x / WARP_SIZE;
  __syncwarp();  // nobody reads the warp's `weights` any more
#if CACHE_KIND
  shared.unit[index] = warp.unit * PAIRS_UNIT<Operand>;
#endif
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

// Sum over every `SHARERS`-th warp from `first` on of the `index`-th piece of a row.
template <int ROWS_STORED, int ROWS>
__device__ __forceinline__ Piece sum_of_warps(const BlockShared<ROWS_STORED, ROWS>& shared, int first, int row,
                                              int index) {
  constexpr int SHARERS = BlockShared<ROWS_STORED, ROWS>::SHARERS, MOST = ceil_div(NUM_WARPS, SHARERS);
  Piece piece;
  float tops[MOST];
#pragma unroll
  for (int i = 0; i < MOST; i++) {
    const int w = first + i * SHARERS;
    tops[i] = w < NUM_WARPS ? shared.top[w][row] : NEGATIVE_INFINITY;
    piece.state.m = fmaxf(piece.state.m, tops[i]);
  }
#pragma unroll
  for (int i = 0; i < MOST; i++) {
    const int w = min(first + i * SHARERS, NUM_WARPS - 1);
    const float factor = exp2_below(tops[i], piece.state.m);
    const float* part = shared.warps[w].output + row * OUTPUT_STRIDE + 4 * index;
    const float4 sum = *reinterpret_cast<const float4*>(part);
    piece.state.l += shared.total[w][row] * factor;
#if CACHE_KIND
    const float of_sum = factor * shared.unit[w];
#else
    const float of_sum = factor;
#endif
    add_scaled(piece.sum, sum, of_sum);
  }
  return piece;
}

// Calls `take(i, lane, keep)` for the `num_pieces` pieces that a thread block has, by SHARERS neighbouring lanes
// for each, which `lane` counts, and by whole warps: where `keep` is false, a lane only takes part.
template <int SHARERS, typename Take>
__device__ __forceinline__ void for_pieces(int num_pieces, Take take) {
  const int lane = threadIdx.x % SHARERS;
  for (int i = threadIdx.x / SHARERS; i < round_up(num_pieces, WARP_SIZE / SHARERS); i += NUM_THREADS / SHARERS) {
    take(min(i, num_pieces - 1), lane, lane == 0 && i < num_pieces);
  }
}

// Calls `keep(i, piece)` for each piece of a thread block, once.
template <int ROWS_STORED, int ROWS, typename Keep>
__device__ __forceinline__ void for_block_pieces(const BlockShared<ROWS_STORED, ROWS>& shared, int num_rows,
                                                 Keep keep) {
  constexpr int SHARERS = BlockShared<ROWS_STORED, ROWS>::SHARERS;
  for_pieces<SHARERS>(num_rows * ROW_PIECES, [&](int i, int lane, bool keeps) {
    Piece piece = sum_of_warps(shared, lane, i / ROW_PIECES, i % ROW_PIECES);
    piece.merge_lanes<SHARERS>();
    if (keeps) keep(i, piece);
  });
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

// Merges the `num_parts` parts of `num_rows` rows; `slot_of(row)` says where they lie, and `write(i, piece)` is
// called for each piece. By all threads of the thread block, SHARERS for a piece: each has every so many-th part.
template <int SHARERS, typename Parts, typename SlotOf, typename Write>
__device__ __forceinline__ void merge_parts(const Parts& parts, int num_parts, int num_rows, SlotOf slot_of,
                                            Write write) {
  for_pieces<SHARERS>(num_rows * ROW_PIECES, [&](int i, int lane, bool writes) {
    Piece merged;
    for (int part = lane; part - lane < num_parts; part += PARTS_AT_ONCE * SHARERS) {
      Piece taken[PARTS_AT_ONCE];
      parts.take(taken, slot_of(i / ROW_PIECES), part, SHARERS, num_parts, i % ROW_PIECES);
      merged.merge(taken);
    }
    merged.merge_lanes<SHARERS>();
    if (writes) write(i, merged);
  });
}
