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
#ifndef IN_FLIGHT
#define IN_FLIGHT SLOTS  // slots of weights that are asked for and have not come, at most
#endif
#ifndef COPYING_WARPS
#define COPYING_WARPS 1  // behind those that multiply
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
#ifndef LAYER_KIND
#define LAYER_KIND 0  // of weights, as in quantized/weight_kinds.cuh: of all but queries, keys and values
#endif
#ifndef QKV_KIND
#define QKV_KIND LAYER_KIND  // of theirs
#endif
#ifndef VALUES_KIND
#define VALUES_KIND QKV_KIND  // of those of values, which are a product of their own where it is another one
#endif

#include "common/layer_rows.cuh"
#include "common/norm_kinds.cuh"
#include "quantized/raw_weights.cuh"

// Whether the middle lies in shared memory when it is multiplied. That of eight tokens finds no room there: each
// slot of the ring is one of theirs, by all units of the thread block, and lanes have what two slots are multiplied
// by.
#define MIDDLE_IS_SHARED (LAYER_KIND || TOKENS <= 4)

constexpr bool FEW_BITS_LAYERS = LAYER_KIND != WHOLE_WEIGHTS;
constexpr int OTHER_THREADS = (COPYING_WARPS + 1) * WARP_SIZE;  // they, and a warp that marks
constexpr int MAX_LAYERS = 64;
// Rows of a weight that are made together; of gates and values half as many each.
constexpr int UNIT = FEW_BITS_LAYERS ? 16 : 8;
// Units whose sums are finished together.
constexpr int MOST_UNITS = FEW_BITS_LAYERS ? 4 : TOKENS <= 2 ? 16 : 32 / TOKENS;
constexpr int TOKEN_ROWS = TOKENS * UNIT;                          // results of a unit
constexpr int NUM_TASKS = TOKENS * NUM_KV_HEADS * SPLITS;          // thread blocks that attend
constexpr int SUB_LANES = 8 / TOKENS;                              // lanes that share a token's row
constexpr int STREAM_UNITS = ceil_div(HIDDEN / UNIT, NUM_BLOCKS);  // of a thread block, at most

static_assert(COPYING_WARPS == (FEW_BITS_LAYERS ? 2 : 1), "rows of few bits and their scales have a warp each");
static_assert(TOKENS == 1 || TOKENS == 2 || TOKENS == 4 || TOKENS == 8, "rows of mma");
static_assert(TOKENS * SPLITS <= 8 && (SPLITS & (SPLITS - 1)) == 0, "each split of a token has a row of mma");
static_assert(MOST_UNITS * TOKEN_ROWS <= NUM_THREADS, "a thread has one result of a group at most");
static_assert(NUM_TASKS <= NUM_BLOCKS, "a thread block attends for one token and KV head at most");
static_assert(HEAD_SIZE == 64 || HEAD_SIZE == 128, "a lane has one or two words of a vector");
static_assert(HIDDEN % STEP == 0 && MIDDLE % STEP == 0 && ATTENDED % STEP == 0, "rows are whole steps");

// The products of a layer. That of values has their rows of queries, keys and values where those are apart.
enum Product { QKV = 0, OUT = 1, UP = 2, DOWN = 3, VALUES = 4 };
constexpr bool VALUES_APART = VALUES_KIND != QKV_KIND;
constexpr int NUM_PRODUCTS = VALUES_APART ? 5 : 4;
constexpr int FIRST_VALUE = (NUM_HEADS + NUM_KV_HEADS) * HEAD_SIZE;  // of the rows of queries, keys and values
constexpr int FIRST_ROWS = VALUES_APART ? FIRST_VALUE : QKV_ROWS;    // of the first product
__host__ __device__ constexpr int inner_of_product(int product) {
  return product == OUT ? ATTENDED : product == DOWN ? MIDDLE : HIDDEN;
}

#if LAYER_KIND
#include "all_layers/few_bits_order.cuh"
#else
#include "all_layers/whole_order.cuh"
#endif

// The tensors of a layer.
struct Layer {
  const Element* attention_norm;  // [HIDDEN]
  const Element* mlp_norm;        // [HIDDEN]
  // [QKV_ROWS, HIDDEN]; [HIDDEN, ATTENDED]; [2 * MIDDLE, HIDDEN]: gates, then values; [HIDDEN, MIDDLE]. With
  // VALUES_APART the first has FIRST_ROWS, and a last one those that follow.
  const StoredWeight* weights[NUM_PRODUCTS];
  const Element* head_biases[VALUES_APART ? 2 : 1];  // [QKV_ROWS], or null; with VALUES_APART as the weights
  const Element *query_norm, *key_norm;              // [HEAD_SIZE], or null; with HEAD_NORM
  Element* key_cache;                                // [num_blocks, NUM_KV_HEADS, HEAD_SIZE / 8, BLOCK_SIZE, 8]
  Element* value_cache;                              // [num_blocks, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE]
#if LAYER_KIND
  const __half* scales[NUM_PRODUCTS];    // [rows of a weight, groups]
  const __half* minimums[NUM_PRODUCTS];  // the same, or null
#else
  float attention_unit, mlp_unit;  // of rows that are weighed by a norm, see layer_norms.cuh
#endif

  __device__ __forceinline__ const Element* head_bias(int product) const {
    return head_biases[VALUES_APART && product == VALUES];
  }
};

// Which units of each product are a thread block's.
struct Share {
  int first_qkv, num_qkv;
  int first_stream, num_stream;  // of the way out and of the way down: rows of the residual stream
  int first_up, num_up;
  int first_values, num_values;  // none, but with VALUES_APART

  __device__ __forceinline__ int first(int product) const {
    return product == QKV ? first_qkv : product == UP ? first_up : product == VALUES ? first_values : first_stream;
  }
  __device__ __forceinline__ int count(int product) const {
    return product == QKV ? num_qkv : product == UP ? num_up : product == VALUES ? num_values : num_stream;
  }
  // Of what is a thread block's of queries, keys and values by one of their products.
  __device__ __forceinline__ int first_head_row(int product) const {
    return (product == VALUES ? FIRST_VALUE : 0) + first(product) * UNIT;
  }
};

// All warps.
__device__ __forceinline__ void sync_all() { sync_named(2, NUM_THREADS + OTHER_THREADS); }
