// Large weights on their way through a ring in shared memory: one thread block a multiprocessor, whose last warp
// asks for rows by bulk copies while the others multiply.
//
// Bytes in flight: a multiprocessor's share of an H200's memory is 32 KB a microsecond, and an answer takes about
// one; the rest of the ring is there for warps that fall behind, and for the microseconds in which nothing is
// multiplied because a kernel waits for the one before it: it asks for a whole ring before. The next kernel is let
// in at once, and comes as soon as a multiprocessor has room for its ring.
//
// Copies: a warp whose lanes each have an address can do some 24 a microsecond. Rows that are one stage long come
// as one copy, as they lie in the matrix. Longer ones come in stages of 8 rows by STAGE_FEATURES, a copy each, the
// last of which is short where stages do not share out a row; these lie 64 bytes further apart than they are long,
// so that the 16-byte pieces of two rows and four lanes fall into different banks.

#pragma once

#include "common/bulk_copy.cuh"
#include "products/product_shape.cuh"

#ifndef STAGE_FEATURES
#define STAGE_FEATURES 768
#endif
#ifndef STAGES
#define STAGES 6
#endif
#ifndef GROUP
#define GROUP 1  // units that are made at a time, where the input does not stay in registers
#endif

constexpr int UNIT = 8;                                    // rows of the weight that are made together
constexpr int STAGE_SEGMENT = STAGE_FEATURES / NUM_WARPS;  // inner elements of a warp in a stage
constexpr int STAGE_STEPS = STAGE_SEGMENT / STEP;
constexpr int ROW_STAGES = ceil_div(IN_FEATURES, STAGE_FEATURES);  // of a unit
constexpr int STEPS = ROW_STAGES * STAGE_STEPS;  // of a warp; the last ones may lie behind the end of a row
constexpr bool SHARES_OUT = IN_FEATURES % STAGE_FEATURES == 0;                  // whether there are no such
constexpr int LAST_FEATURES = IN_FEATURES - (ROW_STAGES - 1) * STAGE_FEATURES;  // of a row's last stage
constexpr int ROW_STRIDE = ROW_STAGES == 1 ? IN_FEATURES : STAGE_FEATURES + 64 / sizeof(Element);
constexpr bool RESIDENT = STEPS <= 16;           // whether the input stays in registers
constexpr int TEAM = UNIT * GROUP * MAX_TOKENS;  // threads that finish a group, one a result
constexpr int NUM_TEAMS = NUM_THREADS / TEAM;

static_assert(IN_FEATURES % PIECE == 0, "rows begin at whole pieces");
static_assert(STAGE_FEATURES % (NUM_WARPS * STEP) == 0, "every warp gets whole steps of a stage");
static_assert(TOKEN_TILES == 1, "mma has room for 8 tokens and two parts of the inner dimension");
static_assert(NUM_TEAMS > 0, "a group has a thread for each result");
static_assert(GROUP == 1 || !RESIDENT, "what stays in registers need not be shared by units");
static_assert(NORM == NO_NORM || RESIDENT, "what is normed stays in registers");

struct StreamShared {
  alignas(128) Element ring[STAGES][UNIT * ROW_STRIDE];
  float sums[2][NUM_WARPS][GROUP][MAX_TOKENS * UNIT];
#if NORM
  alignas(16) Element scales[IN_FEATURES], shifts[NORM == LAYER_NORM ? IN_FEATURES : PIECE];
  uint4 exchange[NUM_WARPS][WARP_SIZE];   // a token's pieces on their way from lane to lane
  float2 moments[NUM_WARPS][MAX_TOKENS];  // mean and sum of squared deviations of a warp's part
  uint64 norm_filled;
#endif
  uint64 filled[STAGES], read[STAGES];
};

// The units of a thread block are every gridDim.x-th.
__device__ __forceinline__ int unit_here(int index) { return blockIdx.x + index * gridDim.x; }

// The last warp, which only copies.
__device__ __forceinline__ bool copies_weights() { return threadIdx.x >= NUM_THREADS; }

// By all threads; after it a ring is ready.
__device__ __forceinline__ void prepare_ring(StreamShared& shared) {
  let_next_kernel_start();
  if (threadIdx.x == NUM_THREADS) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(shared_address(&shared.filled[i]), 1);
      init_barrier(shared_address(&shared.read[i]), NUM_WARPS);
    }
#if NORM
    init_barrier(shared_address(&shared.norm_filled), 1);
#endif
    publish_barriers();
  }
  __syncthreads();
}

// One stage of a unit, whose rows lie in RUNS runs of rows that follow each other; `run_of(i)` is run i, from the
// stage's first inner element on.
// NOTE: by one thread, in whose code everything is the same for all lanes: a copy is an instruction of the whole
// warp, and with an address of its own for every lane there are three times as many instructions between two
// copies.
template <int RUNS, typename RunOf>
__device__ __forceinline__ void fill_stage(StreamShared& shared, int stage, int num_features, RunOf run_of) {
  constexpr int RUN_ROWS = UNIT / RUNS, AT_ONCE = ROW_STAGES == 1 ? RUN_ROWS : 1;  // rows of a run, of a copy
  const uint32 barrier = shared_address(&shared.filled[stage]);
  const int row_bytes = num_features * sizeof(Element);
  expect_bytes(barrier, UNIT * row_bytes);
#pragma unroll
  for (int i = 0; i < RUNS; i++) {
    const Element* run = run_of(i);
    Element* to = shared.ring[stage] + i * RUN_ROWS * ROW_STRIDE;
#pragma unroll
    for (int row = 0; row < RUN_ROWS; row += AT_ONCE) {
      copy_bulk(to + row * ROW_STRIDE, run + row * IN_FEATURES, AT_ONCE * row_bytes, barrier);
    }
  }
}

// The units' rows of `weight` [.., IN_FEATURES], stage by stage; `row_of(unit, i)` is the first row of run i of a
// unit.
template <int RUNS, typename RowOf>
__device__ __forceinline__ void fill_ring(StreamShared& shared, const Element* weight, int num_units,
                                          RowOf row_of) {
  if (threadIdx.x != NUM_THREADS) return;
  const int own = ceil_div(num_units - static_cast<int>(blockIdx.x), gridDim.x);  // units
  const auto run_at = [&](int index, int stage, int run) {
    return weight + static_cast<int64>(row_of(unit_here(index), run)) * IN_FEATURES + stage * STAGE_FEATURES;
  };
  int filled = 0;
  Ring<STAGES> at;
#pragma unroll 1
  for (int first = 0; first < own; first += GROUP) {
#pragma unroll 1
    for (int i = 0; i < GROUP * ROW_STAGES; i++) {
      const int index = first + i % GROUP, stage = i / GROUP;
      if (index >= own) continue;
      if (filled >= STAGES) wait(shared_address(&shared.read[at.stage]), at.parity ^ 1);
      const int num_features = SHARES_OUT || stage + 1 < ROW_STAGES ? STAGE_FEATURES : LAST_FEATURES;
      fill_stage<RUNS>(shared, at.stage, num_features, [&](int run) { return run_at(index, stage, run); });
      at.advance();
      filled++;
    }
  }
}

#if NORM
// Brings the norm's numbers in; they do not depend on the kernel before.
__device__ __forceinline__ void fill_norm(StreamShared& shared, const Element* norm_weight,
                                          const Element* norm_bias) {
  if (threadIdx.x != NUM_THREADS) return;
  constexpr uint32 BYTES = IN_FEATURES * sizeof(Element);
  const uint32 barrier = shared_address(&shared.norm_filled);
  const bool shifted = NORM == LAYER_NORM && norm_bias != nullptr;
  expect_bytes(barrier, shifted ? 2 * BYTES : BYTES);
  copy_bulk(shared.scales, norm_weight, BYTES, barrier);
  if (shifted) copy_bulk(shared.shifts, norm_bias, BYTES, barrier);
}
#endif
