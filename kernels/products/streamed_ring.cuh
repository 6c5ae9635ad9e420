// Large weights on their way through a ring in shared memory: one thread block a multiprocessor, whose last warp
// asks for rows by bulk copies while the others multiply.
//
// Bytes in flight: a multiprocessor's share of an H200's memory is 32 KB a microsecond, and an answer takes about
// one; the rest of the ring is there for warps that fall behind, and for the three microseconds in which nothing is
// multiplied because a kernel waits for the one before it: it asks for a whole ring before. The next kernel is let
// in when this one has asked for its last weights. Earlier would only take the memory from this kernel, which has
// to be waited for.
//
// Copies: 8 rows of STAGE_FEATURES at a time. In rows of 2 KB that is 16 copies a microsecond; a warp whose lanes
// each have an address can do some 24. Rows lie 64 bytes further apart than they are long, so that the 16-byte
// pieces of two rows and four lanes fall into different banks.

#pragma once

#include "common/bulk_copy.cuh"
#include "products/product_shape.cuh"

#ifndef STAGE_FEATURES
#define STAGE_FEATURES 768
#endif
#ifndef STAGES
#define STAGES 6
#endif

constexpr int UNIT = 8;                                    // rows of the weight that are made together
constexpr int STAGE_SEGMENT = STAGE_FEATURES / NUM_WARPS;  // inner elements of a warp in a stage
constexpr int STAGE_STEPS = STAGE_SEGMENT / STEP;
constexpr int ROW_STAGES = IN_FEATURES / STAGE_FEATURES;  // of a unit
constexpr int ROW_STRIDE = STAGE_FEATURES + 64 / sizeof(Element);
constexpr int ROW_BYTES = STAGE_FEATURES * sizeof(Element);  // of a stage
constexpr bool RESIDENT = STEPS * TOKEN_TILES <= 16;         // whether the input stays in registers
constexpr int GROUP = RESIDENT ? 1 : 2;
constexpr int TEAM = UNIT * GROUP * MAX_TOKENS;  // threads that finish a group, one a result
constexpr int NUM_TEAMS = NUM_THREADS / TEAM;

static_assert(IN_FEATURES % STAGE_FEATURES == 0, "a row is whole stages");
static_assert(STAGE_FEATURES % (NUM_WARPS * STEP) == 0, "every warp gets whole steps of a stage");
static_assert(ROW_BYTES % 128 == 0, "rows in shared memory begin in alternating halves of the banks");
static_assert(TOKEN_TILES <= 2, "mma has 16 rows");
static_assert(NUM_THREADS % TEAM == 0, "every thread is in a team");
static_assert(RESIDENT || TOKEN_TILES == 1, "of a few tokens what is too long for registers is read again");
static_assert(NORM == NO_NORM || STEPS <= 8, "a warp's part of the input stays in registers");

struct StreamShared {
  alignas(128) Element ring[STAGES][UNIT][ROW_STRIDE];
  float sums[2][NUM_WARPS][GROUP][MAX_TOKENS * UNIT];
#if NORM
  uint4 exchange[NUM_WARPS][WARP_SIZE];   // a token's pieces on their way from lane to lane
  float2 moments[NUM_WARPS][MAX_TOKENS];  // mean and sum of squared deviations of a warp's part
#endif
  uint64 filled[STAGES], read[STAGES];
};

// The units of a thread block are every gridDim.x-th.
__device__ __forceinline__ int unit_here(int index) { return blockIdx.x + index * gridDim.x; }

// The last warp, which only copies.
__device__ __forceinline__ bool copies_weights() { return threadIdx.x >= NUM_THREADS; }

// By all threads; after it a ring is ready.
__device__ __forceinline__ void prepare_ring(StreamShared& shared) {
  if (threadIdx.x == NUM_THREADS) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(shared_address(&shared.filled[i]), 1);
      init_barrier(shared_address(&shared.read[i]), NUM_THREADS);
    }
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
__device__ __forceinline__ void fill_stage(StreamShared& shared, int stage, RunOf run_of) {
  const uint32 barrier = shared_address(&shared.filled[stage]);
  expect_bytes(barrier, UNIT * ROW_BYTES);
#pragma unroll
  for (int i = 0; i < RUNS; i++) {
    const Element* run = run_of(i);
#pragma unroll
    for (int row = 0; row < UNIT / RUNS; row++) {
      copy_bulk(shared.ring[stage][i * (UNIT / RUNS) + row], run + row * IN_FEATURES, ROW_BYTES, barrier);
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
  const int total = own * ROW_STAGES;
  const auto run_at = [&](int index, int stage, int run) {
    return weight + static_cast<int64>(row_of(unit_here(index), run)) * IN_FEATURES + stage * STAGE_FEATURES;
  };
  int filled = 0;
  Ring<STAGES> at;
#pragma unroll 1
  for (int first = 0; first < own; first += GROUP) {
#pragma unroll 1
    for (int i = 0; i < GROUP * ROW_STAGES; i++) {
      const int index = first + i % GROUP;
      if (index >= own) continue;
      if (filled >= STAGES) wait(shared_address(&shared.read[at.stage]), at.parity ^ 1);
      fill_stage<RUNS>(shared, at.stage, [&](int run) { return run_at(index, i / GROUP, run); });
      at.advance();
      if (++filled == total) let_next_kernel_start();
    }
  }
}
