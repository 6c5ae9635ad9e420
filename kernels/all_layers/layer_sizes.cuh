// What the parts of streamed_layers.cu share: sizes, how rows are cut, the tensors of a layer, who does what.

#pragma once

#ifndef INPUT_IS_FRESH
#define INPUT_IS_FRESH 1  // the newest keys and values are written by the same launch that reads them
#endif

#ifndef HIDDEN
#define HIDDEN 896
#endif
#ifndef MIDDLE
#define MIDDLE 4864
#endif
#ifndef NUM_HEADS
#define NUM_HEADS 14
#endif
#ifndef NUM_WARPS
#define NUM_WARPS 8
#endif
#ifndef COPIES
#define COPIES 4
#endif
#ifndef SLOTS
#define SLOTS 5
#endif
#ifndef PACE
#define PACE 0  // cycles between two slots that are asked for, at least
#endif
#ifndef NORM
#define NORM 2
#endif
#ifndef HEAD_NORM
#define HEAD_NORM 0
#endif
#ifndef ROTARY
#define ROTARY 1
#endif

#include "common/layer_rows.cuh"
#include "common/norm_kinds.cuh"

constexpr int OTHER_THREADS = 2 * WARP_SIZE;  // behind them a warp that copies and one that marks
constexpr int MAX_LAYERS = 64;
constexpr int UNIT = 8;               // rows of a weight that are made together; of gates and values 4 each
constexpr int STAGE_FEATURES = 1024;  // inner elements of a stage of the ring
constexpr int STAGE_STEPS = STAGE_FEATURES / STEP / NUM_WARPS;     // of a warp
constexpr int ROW_STRIDE = STAGE_FEATURES + 64 / sizeof(Element);  // elements; no bank conflicts
constexpr int MOST_UNITS = TOKENS <= 2 ? 16 : 32 / TOKENS;         // whose sums are finished together
constexpr int TOKEN_ROWS = TOKENS * UNIT;                          // results of a unit
constexpr int NUM_TASKS = TOKENS * NUM_KV_HEADS * SPLITS;          // thread blocks that attend
constexpr int SUB_LANES = 8 / TOKENS;                              // lanes that share a token's norm

static_assert(TOKENS == 1 || TOKENS == 2 || TOKENS == 4 || TOKENS == 8, "rows of mma");
static_assert(TOKENS * SPLITS <= 8 && (SPLITS & (SPLITS - 1)) == 0, "each split of a token has a row of mma");
static_assert(STAGE_STEPS * STEP * NUM_WARPS == STAGE_FEATURES, "every warp gets whole steps of a stage");
static_assert(MOST_UNITS * TOKEN_ROWS <= NUM_THREADS, "a thread has one result of a group at most");
static_assert(NUM_TASKS <= NUM_BLOCKS, "a thread block attends for one token and KV head at most");
static_assert(HEAD_SIZE == 64 || HEAD_SIZE == 128, "a lane has one or two words of a vector");
static_assert(HIDDEN % STEP == 0 && MIDDLE % STEP == 0 && ATTENDED % STEP == 0, "rows are whole steps");

// A slot of the ring has two stages: of one unit, or where a row is one stage, of two units.
constexpr int SLOT_STAGES = 2, SLOT_FEATURES = SLOT_STAGES * STAGE_FEATURES, SLOT_STEPS = SLOT_STAGES * STAGE_STEPS;
__host__ __device__ constexpr bool is_short(int inner) { return inner <= STAGE_FEATURES; }
__host__ __device__ constexpr int slots_of(int inner) { return ceil_div(inner, SLOT_FEATURES); }
__host__ __device__ constexpr int stages_of(int inner) { return ceil_div(inner, STAGE_FEATURES); }
__host__ __device__ constexpr int steps_of(int inner) { return stages_of(inner) * STAGE_STEPS; }  // of a warp
__host__ __device__ constexpr int padded(int inner) { return stages_of(inner) * STAGE_FEATURES; }

// Where in a row a lane's piece of step `i` lies. Steps of a stage go to the warps in turn, so that short rows have
// work for all of them.
__device__ __forceinline__ int inner_of(const Place& place, int i) {
  return i / STAGE_STEPS * STAGE_FEATURES + (i % STAGE_STEPS * NUM_WARPS + place.warp) * STEP + place.q * PIECE;
}

// The four products of a layer.
enum Product { QKV = 0, OUT = 1, UP = 2, DOWN = 3 };
__host__ __device__ constexpr int inner_of_product(int product) {
  return product == OUT ? ATTENDED : product == DOWN ? MIDDLE : HIDDEN;
}

// The tensors of a layer.
struct Layer {
  const Element* attention_norm;  // [HIDDEN]
  const Element* mlp_norm;        // [HIDDEN]
  const Element* weights[4];      // [QKV_ROWS, HIDDEN]; [HIDDEN, ATTENDED]; [2 * MIDDLE, HIDDEN]: gates, then
                                  // values; [HIDDEN, MIDDLE]
  const Element* qkv_bias;        // [QKV_ROWS], or null
  const Element *query_norm, *key_norm;  // [HEAD_SIZE], or null; with HEAD_NORM
  Element* key_cache;                    // [num_blocks, NUM_KV_HEADS, HEAD_SIZE / 8, BLOCK_SIZE, 8]
  Element* value_cache;                  // [num_blocks, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE]
};

// Which units of each product are a thread block's.
struct Share {
  int first_qkv, num_qkv;
  int first_stream, num_stream;  // of the way out and of the way down: rows of the residual stream
  int first_up, num_up;

  __device__ __forceinline__ int first(int product) const {
    return product == QKV ? first_qkv : product == UP ? first_up : first_stream;
  }
  __device__ __forceinline__ int count(int product) const {
    return product == QKV ? num_qkv : product == UP ? num_up : num_stream;
  }
};

// All warps.
__device__ __forceinline__ void sync_all() { sync_named(2, NUM_THREADS + OTHER_THREADS); }
