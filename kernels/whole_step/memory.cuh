// Memory that the parts of persistent_decode.cu share: what is published and where, and the shared memory of a
// thread block.

#pragma once

#include "whole_step/quantized_head.cuh"
#include "whole_step/roles.cuh"
#include "common/published.cuh"

// What is published in a layer, for all tokens; everything but queries, keys and values in COPIES copies.
struct Published {
  Element* memory;

  static constexpr int LSE_AT = NUM_TOKENS * SPLITS * ATTENDED;
  static constexpr int MIDDLE_AT = LSE_AT + NUM_TOKENS * SPLITS * LSE_STRIDE * PAIR;
  static constexpr int STREAM_AT = MIDDLE_AT + NUM_TOKENS * MIDDLE;
  static constexpr int COPY = STREAM_AT + 2 * NUM_TOKENS * HIDDEN;  // elements of a copy
  static constexpr int ELEMENTS = NUM_TOKENS * QKV_ROWS + COPIES * COPY;

  __device__ __forceinline__ Published(Element* all, int layer)
      : memory(all + static_cast<int64>(layer) * ELEMENTS) {}

  __device__ __forceinline__ Element* qkv() const { return memory + COPIES * COPY; }  // [num_tokens, QKV_ROWS]
  __device__ __forceinline__ Element* attended(int copy) const {                      // [., SPLITS, ATTENDED]
    return memory + copy * COPY;
  }
  __device__ __forceinline__ float* lse(int copy) const {  // [num_tokens, SPLITS, LSE_STRIDE], units of log2
    return reinterpret_cast<float*>(memory + copy * COPY + LSE_AT);
  }
  __device__ __forceinline__ Element* middle(int copy) const {  // [num_tokens, MIDDLE]
    return memory + copy * COPY + MIDDLE_AT;
  }
  __device__ __forceinline__ Element* stream(int copy, int half) const {  // [num_tokens, HIDDEN] after a half
    return memory + copy * COPY + STREAM_AT + half * NUM_TOKENS * HIDDEN;
  }
};

constexpr int PAD = 32;  // elements between rows of weights; no bank conflicts
constexpr int HIDDEN_STRIDE = HIDDEN + PAD;

// What a thread block needs of a half of a layer, before it is added to the residual stream, in shared memory.
template <int UNITS>
struct IntoSlot {
  __align__(128) Element rows[UNITS * UNIT][HIDDEN_STRIDE];
  __align__(16) Element scale[HIDDEN];
  __align__(16) RowConstants constants[UNITS * UNIT];
};

template <int INNER>
struct BackSlot {
  __align__(128) Element rows[UNIT][INNER + PAD];
  __align__(16) Element bias[UNIT];
};

struct Slots {
  IntoSlot<QKV_UNITS> qkv;
  IntoSlot<UP_UNITS> up;
  BackSlot<ATTENDED> out;
  BackSlot<MIDDLE> down;
};

// Rows of the vocabulary, 16 at a time, where the slots were and behind them: so many have room where the first
// slot was, where both slots of weights behind a norm were, and where any slot was; the others come early. Rows lie
// as they do in memory, so that one copy brings them all. A screened step has tiles of the quantized head there,
// and rows of the vocabulary only when all of those have been read.
constexpr int TILE_ROWS = 2 * UNIT;
constexpr int RING_ROWS = SCREENED ? QUANTIZED_ROWS : TILE_ROWS;
constexpr int TILE_BYTES = SCREENED ? sizeof(QuantizedTile) : TILE_ROWS * HIDDEN * sizeof(Element);
constexpr int RING_IN_FIRST = sizeof(Slots::qkv) / TILE_BYTES;
constexpr int RING_IN_INTO = (sizeof(Slots::qkv) + sizeof(Slots::up)) / TILE_BYTES;
constexpr int RING_IN_SLOTS = smaller(RING, ceil_div(sizeof(Slots), TILE_BYTES));
constexpr int EARLY_TILES = RING - RING_IN_SLOTS;
static_assert(RING >= 2, "one tile is read while another one comes");

// The warps that share a tile of the vocabulary, each a part of its columns of a few steps. Other teams of warps
// have other tiles meanwhile. NOTE: all tiles of a place in the ring are the same team's. A team that came to a
// place where another one still waits for the tile before would take the phase of that one for its own.
constexpr int MOST_PART_STEPS = 8;
constexpr bool can_share_a_tile(int parts) {
  return NUM_WARPS % parts == 0 && RING % (NUM_WARPS / parts) == 0 && HIDDEN / STEP / parts <= MOST_PART_STEPS;
}
constexpr int parts_of_a_tile() {
  int parts = 1;
  while (parts < NUM_WARPS && !can_share_a_tile(parts)) parts++;
  return parts;
}
constexpr int PARTS = parts_of_a_tile(), TEAMS = NUM_WARPS / PARTS;
constexpr int PART = HIDDEN / PARTS, PART_STEPS = PART / STEP;

// States of softmaxes that a thread block puts together: of its warps, and, with clusters, of who shares its
// context.
constexpr int STATES = NUM_WARPS + (IS_CLUSTERED ? SHARES - 1 : 0);
constexpr int SEAT_STATES = STATES / SEATS;  // of a token
static_assert(STATES <= WARP_SIZE / 2, "either half of the lanes of a warp has all of them");

// What the warps have summed up for each token and row, side by side.
using Sums = float[NUM_TOKENS][SUM_ROWS][NUM_WARPS];

// The state before the step; read at its beginning, since at its end nobody can wait for memory.
struct StateBefore {
  int launches, step, at;  // `at`: in the history
  int positions[NUM_TOKENS], seq_lens[NUM_TOKENS];
};

struct Shared {
  union {
    Slots slots;
    Element ring[RING][TILE_ROWS][HIDDEN];
#if SCREENED
    QuantizedTile quantized[RING];
#endif
  };
  // Of each slot, a phase for each layer: it has been filled, and all threads have read it. Of each tile likewise.
  uint64 into_filled[2], into_read[2], back_filled[2], back_read[2], tile_filled[RING], tile_read[RING];
  uint64 layers_filled;
  uint64 begun;                        // a phase for each layer: its first input has come, or is not waited for
  uint64 vectors_filled, part_filled;  // with clusters, a phase for each layer: by other thread blocks
  __align__(16) Layer layers[MAX_LAYERS];
  union {
    __align__(16) Sums sums[3];  // of products in turn
#if SCREENED
    ScreenedSums<PARTS> screened[TEAMS][2];  // behind all layers: of a team's tiles in turn
#endif
  };
  float tile_sums[TEAMS][2][PARTS][NUM_TOKENS][TILE_ROWS];         // of the vocabulary, of a team's tiles in turn
  __align__(16) float2 moments[NUM_TOKENS][NUM_WARPS];             // before the vocabulary: sum and sum of squares
  __align__(16) Element rows[NUM_WARPS][NUM_TOKENS * ROW_STRIDE];  // a warp's part of the input
  __align__(16) Element vectors[SEATS][VECTORS][HEAD_SIZE];        // queries of a KV head, the new key and value
  __align__(16) Element weights[NUM_WARPS][GROUP_SIZE][WEIGHT_STRIDE];  // of the tokens of a tile
  __align__(16) float output[STATES][GROUP_SIZE][HEAD_SIZE];
  __align__(8) float2 state[STATES][GROUP_SIZE];  // m, l
  float new_score[SEATS][GROUP_SIZE];
  uint64 best[NUM_WARPS][NUM_TOKENS];  // keys of tokens that a warp has found
  StateBefore before;
#if SCREENED
  Screening<TEAMS> screening;
#endif
};
