// What the parts of persistent_decode.cu share: sizes, who does what, the tensors of a layer.

#pragma once

#ifndef HIDDEN
#define HIDDEN 768
#endif
#ifndef MIDDLE
#define MIDDLE 3072
#endif
#ifndef NUM_HEADS
#define NUM_HEADS 12
#endif
#ifndef NUM_WARPS
#define NUM_WARPS 12
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef SEATS
#define SEATS 1
#endif
#ifndef NORM
#define NORM 1
#endif
#ifndef GATED
#define GATED 0
#endif
#ifndef ROTARY
#define ROTARY 0
#endif

#ifndef RING
#define RING 4
#endif

#ifndef MAX_COPIES
#define MAX_COPIES 5
#endif
#ifndef FEW_COPIES
#define FEW_COPIES 3
#endif

#include "common/layer_rows.cuh"

enum Norm { LAYER_NORM = 1, RMS_NORM = 2 };

constexpr int NUM_TOKENS = TOKENS;
constexpr int MAX_LAYERS = 32;
constexpr int UNIT = 8;          // rows
constexpr int TILE_TOKENS = 32;  // cached tokens of a warp at a time, one a lane
constexpr int HEAD_PIECES = HEAD_SIZE / PIECE;
constexpr int WEIGHT_STRIDE = TILE_TOKENS + 8;      // elements between heads; no bank conflicts
constexpr int PAIR = 4 / sizeof(Element);           // elements of 32 bits
constexpr int LSE_STRIDE = round_up(NUM_HEADS, 4);  // floats between splits, so that all else starts at 16 bytes

__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

// With CLUSTER thread blocks in a cluster, see roles.cuh; 1: without clusters.
constexpr bool IS_CLUSTERED = CLUSTER > 1;
constexpr int SHARES = IS_CLUSTERED ? 2 : SPLITS;  // thread blocks that share the context of a token and KV head

// Thread blocks that have a token and KV head, those that attend in the first half of a layer, and the others. In
// the second half all of them have rows of the middle. Where SEATS is two, a thread block attends to the same head
// of two tokens, each with half of its warps.
constexpr int NUM_COLUMNS = NUM_TOKENS / SEATS * NUM_KV_HEADS * (IS_CLUSTERED ? CLUSTER : SPLITS);
constexpr int NUM_PRODUCERS = NUM_BLOCKS - NUM_TOKENS / SEATS * NUM_KV_HEADS * SHARES;
constexpr int SEAT_WARPS = NUM_WARPS / SEATS, SEAT_THREADS = SEAT_WARPS * WARP_SIZE;

__host__ __device__ constexpr int units_of(int rows, int num_blocks) { return ceil_div(rows / UNIT, num_blocks); }

// Units of a thread block behind a norm, in either half of a layer; a gate is next to its value.
constexpr int MIDDLE_UNITS = units_of(MIDDLE, NUM_BLOCKS);
constexpr int PAIRED = GATED ? 2 : 1;
constexpr int QKV_UNITS =
    IS_CLUSTERED ? ceil_div(VECTORS * HEAD_SIZE / UNIT, CLUSTER) : units_of(QKV_ROWS, NUM_PRODUCERS);
constexpr int UP_UNITS = MIDDLE_UNITS * PAIRED;
constexpr int RESULT_ROWS = larger(QKV_UNITS, UP_UNITS) * UNIT;
constexpr int SUM = RESULT_ROWS, SQUARES = RESULT_ROWS + 1;  // where the moments are among the sums; squares in two
constexpr int SUM_ROWS = RESULT_ROWS + 3;

// What all thread blocks wait for is published several times, so that fewer of them ask for the same line of
// memory; less often where there is more of it.
constexpr int COPIES = NUM_TOKENS > 2 ? FEW_COPIES : MAX_COPIES;

__host__ __device__ constexpr int segment_of(int inner) { return inner / NUM_WARPS; }  // of a warp
__host__ __device__ constexpr int steps_of(int inner) { return segment_of(inner) / STEP; }

// Where element `k` of a row of `inner` lies that is published to be multiplied: what a lane needs of two steps,
// which is every other word of a piece of either, lies together.
__host__ __device__ constexpr int place_of(int inner, int k) {
  const int within = k % segment_of(inner), step = within / STEP, column = within % STEP / PIECE * 2 + k / 2 % 2;
  const int paired = step / 2 * 2 + 1 < steps_of(inner);
  return k - within + step / 2 * 2 * STEP + column * (paired ? 8 : 4) + (paired ? step % 2 * 4 : 0) +
         k / 4 % 2 * 2 + k % 2;
}

constexpr int ROW_STRIDE = segment_of(HIDDEN) + 32;  // elements between tokens; no bank conflicts
constexpr int NORM_STEPS = steps_of(HIDDEN);

// Columns of a product's input: 2t and 2t + 1 are the even and the odd words of token t. Behind a norm they are
// multiplied by the norm's scales, and as many more columns are the same as it is, for its moments; with more than
// two tokens those are columns of a product of their own.
constexpr int COLUMNS = 2 * NUM_TOKENS;
constexpr bool MOMENTS_APART = 2 * COLUMNS > 8;
constexpr int FIRST_MOMENT = MOMENTS_APART ? 0 : NUM_TOKENS;  // half of their first column

static_assert(HEAD_SIZE == 64, "a lane has two dimensions of the values");
static_assert(HIDDEN % (NUM_WARPS * STEP) == 0 && MIDDLE % (NUM_WARPS * STEP) == 0, "every warp gets whole steps");
static_assert(ATTENDED % (NUM_WARPS * STEP) == 0, "every warp gets whole steps");
static_assert(HIDDEN / UNIT <= NUM_PRODUCERS, "a producer has one unit of the residual stream at most");
static_assert(!IS_CLUSTERED || (NUM_TOKENS * GROUP_SIZE * SPLITS * SEATS == 1 && NUM_COLUMNS <= NUM_BLOCKS),
              "a query each");
static_assert(NUM_BLOCKS % CLUSTER == 0, "all thread blocks are in clusters");
static_assert(RESULT_ROWS * NUM_TOKENS <= NUM_THREADS, "a thread has one result at most");
static_assert(COLUMNS <= 8, "a product has room for the columns of all tokens");
static_assert(NUM_TOKENS % SEATS == 0 && NUM_WARPS % SEATS == 0, "all seats are taken, by as many warps");
static_assert(GROUP_SIZE <= SEAT_WARPS && HEAD_SIZE <= SEAT_THREADS, "a warp for each head, a thread a dimension");
static_assert(NUM_WARPS % 2 == 0, "sums of two warps at a time");

// What a row of a product behind a norm adds up to, with the norm taken out of the sum: factor * (sum of weights
// times scaled inputs - mean * `scales`) + `base`, where `scales` is the sum of weights times scales, and `base`
// that of weights times shifts, and the bias.
struct RowConstants {
  float scales, base;
};

// The tensors of a layer. Biases may be null.
struct Half {
  const Element* norm;                 // [HIDDEN]
  const Element* into;                 // [QKV_ROWS or MIDDLE, HIDDEN]; with GATED gates and then values
  const RowConstants* into_constants;  // of each row
  const Element *back, *back_bias;     // [HIDDEN, ATTENDED or MIDDLE]
};
struct Layer {
  Half halves[2];
  Element* key_cache;    // [num_blocks, NUM_KV_HEADS, HEAD_SIZE / 8, BLOCK_SIZE, 8]
  Element* value_cache;  // [num_blocks, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE]
};

// All warps; one more than those that multiply copies weights.
__device__ __forceinline__ void sync_all() { sync_named(2, NUM_THREADS + WARP_SIZE); }

// The thread has read a slot.
__device__ __forceinline__ void tell_read(uint64& barrier) { arrive(shared_address(&barrier)); }
