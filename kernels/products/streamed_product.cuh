// A few tokens times a matrix that is large enough for the memory's speed to be all that counts; its weights come
// through the ring of streamed_ring.cuh.
//
// All warps but the one that copies share the inner elements of every stage, with weights as the 8-column operand
// of `mma` and the tokens as its rows; of few bits and few tokens the other way round (streamed_pairs.cuh). Their
// input stays in registers where it fits; otherwise it is read again for every GROUP of units of 8 rows, which are
// made at a time. Teams of warps take turns with finishing groups, while the others go on.

#pragma once

#include "products/streamed_norm.cuh"

#if SHARED_TOKENS
#include "quantized/streamed_pairs.cuh"
#else
constexpr int TOGETHER = 1;  // units that a warp multiplies at a time

#if WEIGHT_KIND != WHOLE_WEIGHTS
#include "quantized/streamed_units.cuh"
#else
using StreamSums = UnitSums;

struct StageScales {
  __device__ __forceinline__ StageScales(const StreamShared&, const StreamPlace&, int, int) {}
  __device__ __forceinline__ uint32 bits() const { return 0; }
};

__device__ __forceinline__ void add_stage(StreamSums& sums, const StreamInput& input, int stage,
                                          const StoredPiece (&weights)[STAGE_STEPS], const StageScales&) {
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) sums.add(input.piece(stage, s), weights[s]);
}
#endif

// This warp's part of the stage that comes next, of the thread block's unit number `index`.
__device__ __forceinline__ void multiply_stage(StreamSums& sums, StreamShared& shared, const StreamPlace& place,
                                               Ring<STAGES>& at, const StreamInput& input, int index, int stage,
                                               int) {
  const unsigned char* from = shared.ring[at.stage] + place.g * ROW_STRIDE + place.first * WEIGHT_BITS / 8;
  wait(shared_address(&shared.filled[at.stage]), at.parity);
  StoredPiece weights[STAGE_STEPS];
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) {
    // What lies behind the end of a row may be no number.
    weights[s] = StoredPiece();
    if (place.exists(stage, s)) weights[s] = *reinterpret_cast<const StoredPiece*>(from + s * 4 * STORED_BYTES);
  }
  const StageScales scales(shared, place, index, stage);
  const bool there = all_are_there(weights, scales.bits());
  __syncwarp();  // the order that one lane arrives for
  if (there && place.lane == 0) arrive(shared_address(&shared.read[at.stage]));
  at.advance();
  add_stage(sums, input, stage, weights, scales);
}

// Lays the warps' sums side by side, at `to` [ROOM][UNIT]; `total` reads them from then on.
__device__ __forceinline__ void share_sums(float (*to)[ROOM * UNIT], const StreamSums& sums,
                                           const StreamPlace& place) {
  *reinterpret_cast<float2*>(to[0] + place.g * UNIT + 2 * place.q) = make_float2(sums.of(0), sums.of(1));
}
#endif

// What the sums of one or two rows are multiplied by, asked for before they are there; 1 where sums have been
// scaled.
struct RowScales {
  float of[2] = {1.0f, 1.0f};

  __device__ __forceinline__ void fetch(const __half* scales, int row, int other) {
    if (!FEW_BITS || SCALE_GROUP > 0) return;
    of[0] = to_float(scales[row]);
    of[1] = to_float(scales[other]);
  }
};

// The result of a group that is this thread's; `ROWS` of a unit's rows are results.
template <int ROWS>
struct OwnResult {
  const int i = threadIdx.x % TEAM;
  const int row = i % ROWS, unit = i / ROWS % GROUP, token = i / (ROWS * GROUP);

  __device__ __forceinline__ bool exists(int group, int num_units, int num_tokens) const {
    return token < num_tokens && unit_here(group * GROUP + unit) < num_units;
  }
  // Which of all rows of results.
  __device__ __forceinline__ int feature(int group) const { return unit_here(group * GROUP + unit) * ROWS + row; }

  // The warps' sums for row `row + below` of the unit.
  __device__ __forceinline__ float total(const StreamShared& shared, int group, int below = 0) const {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) sum += shared.sums[group % 2][w][unit][token * UNIT + row + below];
    return sum;
  }
};

// All units of the thread block, group by group; `finish(group)` is called by all threads of one team, that of
// number group % NUM_TEAMS, when `total` has the group's results.
template <typename Finish>
__device__ __forceinline__ void multiply_units(StreamShared& shared, const StreamPlace& place, StreamInput& input,
                                               int num_units, Finish finish) {
  constexpr int UNROLLED = RESIDENT && !IN_SHARED ? ROW_STAGES : 1;
  Ring<STAGES> at;
#pragma unroll 1
  for (int group = 0; unit_here(group * GROUP) < num_units; group++) {
    StreamSums sums[GROUP / TOGETHER];
    input.begin_group();
#pragma unroll UNROLLED
    for (int stage = 0; stage < ROW_STAGES; stage++) {
      input.begin_stage();
#pragma unroll
      for (int u = 0; u < GROUP; u += TOGETHER) {
        const int index = group * GROUP + u;
        if (unit_here(index) >= num_units) continue;
        multiply_stage(sums[u / TOGETHER], shared, place, at, input, index, stage, num_units);
      }
      input.end_stage(stage);
    }
#pragma unroll
    for (int u = 0; u < GROUP; u += TOGETHER) {
      share_sums(shared.sums[group % 2][place.warp] + u, sums[u / TOGETHER], place);
    }
    place.sync_warps();
    if (threadIdx.x / TEAM == group % NUM_TEAMS) finish(group);
  }
}
