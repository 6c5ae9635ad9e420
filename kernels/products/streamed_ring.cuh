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
//
// Weights of few bits (weight_kinds.cuh) come as they are stored, always a copy each row, further apart by as much
// as keeps their smaller pieces apart. Scales of groups within a row, and their minimums, come with the first stage
// of a unit, all of its rows at once, and stay until it is done: there is a place for each unit that a ring can be
// at.

#pragma once

#include "common/bulk_copy.cuh"
#include "quantized/raw_weights.cuh"
#include "products/product_shape.cuh"

#ifndef STAGE_FEATURES
#define STAGE_FEATURES 768
#endif
#ifndef STAGES
#define STAGES 6
#endif
#ifndef IN_FLIGHT
#define IN_FLIGHT STAGES  // stages that are asked for and have not come, at most
#endif
#ifndef GROUP
#define GROUP 1  // units that are made at a time, so that they share an input, or the end of their sums
#endif
#ifndef SHARED_TOKENS
#define SHARED_TOKENS 0  // tokens whose input lies in shared memory; 0: up to MAX_TOKENS, in registers
#endif
#ifndef SCALE_GROUP
#define SCALE_GROUP \
  0  // inner elements that have a scale in common; 0: all of a row, whose sum is scaled at the end
#endif
#ifndef MINIMUMS
#define MINIMUMS 0  // whether groups have one too
#endif

constexpr bool IN_SHARED = SHARED_TOKENS > 0;
constexpr int UNIT = 8;                                    // rows of the weight that are made together
constexpr int STAGE_SEGMENT = STAGE_FEATURES / NUM_WARPS;  // inner elements of a warp in a stage
constexpr int STAGE_STEPS = STAGE_SEGMENT / STEP;
constexpr int ROW_STAGES = ceil_div(IN_FEATURES, STAGE_FEATURES);  // of a unit
constexpr int STEPS = ROW_STAGES * STAGE_STEPS;  // of a warp; the last ones may lie behind the end of a row
constexpr bool SHARES_OUT = IN_FEATURES % STAGE_FEATURES == 0;                  // whether there are no such
constexpr int LAST_FEATURES = IN_FEATURES - (ROW_STAGES - 1) * STAGE_FEATURES;  // of a row's last stage
constexpr bool ROWS_TOGETHER = !FEW_BITS && ROW_STAGES == 1;  // whether rows are copied several at a time
constexpr int STAGE_BYTES = (ROW_STAGES == 1 ? IN_FEATURES : STAGE_FEATURES) * WEIGHT_BITS / 8;  // of a row

// Inner elements that lie together for a lane, which it reads at a time: 16 bytes where units are made in pairs,
// while the four lanes of a row are in one group.
constexpr int lane_run() {
  int run = IN_SHARED ? 128 / WEIGHT_BITS : PIECE;
  while (IN_SHARED && (STAGE_SEGMENT % (4 * run) != 0 || SCALE_GROUP % (4 * run) != 0)) run /= 2;
  return run;
}
constexpr int LANE_RUN = lane_run(), RUN_PIECES = LANE_RUN / PIECE;
constexpr int RUN_BYTES = LANE_RUN * WEIGHT_BITS / 8;
constexpr int ODD_BYTES = (ceil_div(STAGE_BYTES, 4 * RUN_BYTES) | 1) * 4 * RUN_BYTES;
constexpr int ROW_STRIDE = ROWS_TOGETHER ? STAGE_BYTES : FEW_BITS ? ODD_BYTES : STAGE_BYTES + 64;  // bytes
constexpr int ROW_GROUPS = SCALE_GROUP > 0 ? IN_FEATURES / SCALE_GROUP : 1;
constexpr int SCALE_PLACES = GROUP * (1 + ceil_div(STAGES, GROUP* ROW_STAGES));  // units
constexpr int ROOM = IN_SHARED ? SHARED_TOKENS : MAX_TOKENS;                     // tokens that there can be
constexpr bool RESIDENT = IN_SHARED || STEPS <= 16;                              // whether the input is read once
// A warp's inner elements of a stage have one scale, or several: one for each part of them.
constexpr int PART = SCALE_GROUP > 0 && SCALE_GROUP < STAGE_SEGMENT ? SCALE_GROUP : STAGE_SEGMENT;
constexpr int PARTS = STAGE_SEGMENT / PART, PART_STEPS = PART / STEP;
constexpr int TEAM = UNIT * GROUP * ROOM;  // threads that finish a group, one a result
constexpr int NUM_TEAMS = NUM_THREADS / TEAM;

static_assert(IN_FEATURES % PIECE == 0, "rows begin at whole pieces");
static_assert(STAGE_FEATURES % (NUM_WARPS * STEP) == 0, "every warp gets whole steps of a stage");
static_assert(TOKEN_TILES == 1, "mma has room for 8 tokens and two parts of the inner dimension");
static_assert(NUM_TEAMS > 0, "a group has a thread for each result");
static_assert(GROUP == 1 || !RESIDENT || FEW_BITS, "what stays in registers need not be shared by units");
static_assert(NORM == NO_NORM || RESIDENT, "what is normed stays in registers");
static_assert(!FEW_BITS || IN_FEATURES % STEP == 0, "rows of few bits are whole steps");
static_assert(FEW_BITS || !IN_SHARED, "whole weights take their input from registers");
static_assert(!IN_SHARED || GROUP % 2 == 0, "units are made in pairs then");
static_assert(STAGE_SEGMENT % PART == 0 && SCALE_GROUP % PART == 0, "a part is in one group");
static_assert(SCALE_GROUP == 0 || IN_FEATURES % STAGE_SEGMENT == 0, "all of a warp's parts are there, or none");
static_assert(SCALE_GROUP % STEP == 0 && (SCALE_GROUP == 0 || IN_FEATURES % SCALE_GROUP == 0), "whole groups");

struct StreamShared {
  alignas(128) unsigned char ring[STAGES][UNIT * ROW_STRIDE];
#if SCALE_GROUP
  alignas(16) __half group_scales[SCALE_PLACES][1 + MINIMUMS][UNIT * ROW_GROUPS];
#endif
  float sums[2][NUM_WARPS][GROUP][ROOM * UNIT];
#if SHARED_TOKENS
  InputSums input_sums[NUM_WARPS][ROW_STAGES * PARTS][SHARED_TOKENS];
  uint4 tokens[SHARED_TOKENS][NUM_WARPS * STEPS * 4 + 4];  // a warp's pieces step by step; tokens in other banks
#endif
#if NORM
  alignas(16) Element scales[IN_FEATURES], shifts[NORM == LAYER_NORM ? IN_FEATURES : PIECE];
#if !SHARED_TOKENS
  uint4 exchange[NUM_WARPS][WARP_SIZE];  // a token's pieces on their way from lane to lane
#endif
  float2 moments[NUM_WARPS][MAX_TOKENS];  // mean and sum of squared deviations of a warp's part
  uint64 norm_filled;
#endif
  uint64 filled[STAGES], read[STAGES];
};

// A weight as it is stored.
struct StreamedWeight {
  const void* digits;      // [rows, IN_FEATURES] as WEIGHT_KIND has them
  const __half* scales;    // [rows, ROW_GROUPS], or null
  const __half* minimums;  // the same, with MINIMUMS

  __device__ __forceinline__ const unsigned char* at(int row, int stage) const {
    const int64 first = static_cast<int64>(row) * IN_FEATURES + stage * STAGE_FEATURES;
    return static_cast<const unsigned char*>(digits) + first * WEIGHT_BITS / 8;
  }
};

// The units of a thread block are every gridDim.x-th.
__device__ __forceinline__ int unit_here(int index) { return blockIdx.x + index * gridDim.x; }

// The last warp, which only copies.
__device__ __forceinline__ bool copies_weights() { return threadIdx.x >= NUM_THREADS; }

// By all threads; after it a ring is ready.
__device__ __forceinline__ void prepare_ring(StreamShared& shared) {
  begin_launch();
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
// stage's first inner element on. `more` bytes come along.
// NOTE: by the lane that is elected: a copy is an instruction of the whole warp, and the compiler knows of no other
// single lane that its addresses are those of all. It makes a loop around each copy otherwise, of some 70 cycles.
template <int RUNS, typename RunOf>
__device__ __forceinline__ void fill_stage(StreamShared& shared, int stage, int num_features, int more,
                                           RunOf run_of) {
  constexpr int RUN_ROWS = UNIT / RUNS, AT_ONCE = ROWS_TOGETHER ? RUN_ROWS : 1;  // rows of a run, of a copy
  constexpr int ROW_BYTES = IN_FEATURES * WEIGHT_BITS / 8;
  const uint32 barrier = shared_address(&shared.filled[stage]);
  const int row_bytes = num_features * WEIGHT_BITS / 8;
  expect_bytes(barrier, UNIT * row_bytes + more);
#pragma unroll
  for (int i = 0; i < RUNS; i++) {
    const unsigned char* run = run_of(i);
    unsigned char* to = shared.ring[stage] + i * RUN_ROWS * ROW_STRIDE;
#pragma unroll
    for (int row = 0; row < RUN_ROWS; row += AT_ONCE) {
      copy_bulk(to + row * ROW_STRIDE, run + row * ROW_BYTES, AT_ONCE * row_bytes, barrier);
    }
  }
}

#if SCALE_GROUP
constexpr int UNIT_SCALE_BYTES = (1 + MINIMUMS) * UNIT * ROW_GROUPS * sizeof(__half);

// Scales and minimums of a unit, told to the barrier of its first stage.
template <int RUNS, typename RowOfRun>
__device__ __forceinline__ void fill_scales(StreamShared& shared, const StreamedWeight& weight, int index,
                                            int stage, RowOfRun row_of_run) {
  constexpr int COUNT = UNIT / RUNS * ROW_GROUPS;  // of a run
  const uint32 barrier = shared_address(&shared.filled[stage]);
  auto& place = shared.group_scales[index % SCALE_PLACES];
#pragma unroll
  for (int i = 0; i < RUNS; i++) {
    const int64 first = static_cast<int64>(row_of_run(i)) * ROW_GROUPS;
    copy_bulk(place[0] + i * COUNT, weight.scales + first, COUNT * sizeof(__half), barrier);
#if MINIMUMS
    copy_bulk(place[1] + i * COUNT, weight.minimums + first, COUNT * sizeof(__half), barrier);
#endif
  }
}
#endif

// The units' rows of `weight`, stage by stage; `row_of(unit, i)` is the first row of run i of a unit.
template <int RUNS, typename RowOf>
__device__ __forceinline__ void fill_ring(StreamShared& shared, const StreamedWeight& weight, int num_units,
                                          RowOf row_of) {
  if (!is_elected()) return;
  const int own = ceil_div(num_units - static_cast<int>(blockIdx.x), gridDim.x);  // units
  int filled = 0;
  Ring<STAGES> at, coming;
#pragma unroll 1
  for (int first = 0; first < own; first += GROUP) {
#pragma unroll 1
    for (int i = 0; i < GROUP * ROW_STAGES; i++) {
      const int index = first + i % GROUP, stage = i / GROUP;
      if (index >= own) continue;
      if (filled >= STAGES) wait(shared_address(&shared.read[at.stage]), at.parity ^ 1);
      if (IN_FLIGHT < STAGES && filled >= IN_FLIGHT) {
        wait(shared_address(&shared.filled[coming.stage]), coming.parity);
        coming.advance();
      }
      const int num_features = SHARES_OUT || stage + 1 < ROW_STAGES ? STAGE_FEATURES : LAST_FEATURES;
      const auto row_of_run = [&](int run) { return row_of(unit_here(index), run); };
      int more = 0;
#if SCALE_GROUP
      if (stage == 0) more = UNIT_SCALE_BYTES;
#endif
      fill_stage<RUNS>(shared, at.stage, num_features, more,
                       [&](int run) { return weight.at(row_of_run(run), stage); });
#if SCALE_GROUP
      if (stage == 0) fill_scales<RUNS>(shared, weight, index, at.stage, row_of_run);
#endif
      at.advance();
      filled++;
    }
  }
}

#if NORM
// Brings the norm's numbers in; they do not depend on the kernel before.
__device__ __forceinline__ void fill_norm(StreamShared& shared, const Element* norm_weight,
                                          const Element* norm_bias) {
  if (!is_elected()) return;
  constexpr uint32 BYTES = IN_FEATURES * sizeof(Element);
  const uint32 barrier = shared_address(&shared.norm_filled);
  const bool shifted = NORM == LAYER_NORM && norm_bias != nullptr;
  expect_bytes(barrier, shifted ? 2 * BYTES : BYTES);
  copy_bulk(shared.scales, norm_weight, BYTES, barrier);
  if (shifted) copy_bulk(shared.shifts, norm_bias, BYTES, barrier);
}
#endif
