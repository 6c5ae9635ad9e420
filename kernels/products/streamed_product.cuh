// A few tokens times a matrix that is large enough for the memory's speed to be all that counts; its weights come
// through the ring of streamed_ring.cuh.
//
// All warps but the one that copies share the inner elements of every stage, with weights as the 8-column operand
// of `mma` and 16 tokens as its rows. Their input stays in registers where it fits; otherwise it is read again for
// every GROUP of units of 8 rows, which are made at a time. Teams of warps take turns with finishing groups, while
// the others go on.

#pragma once

#include "products/streamed_norm.cuh"

// The product of tokens with 32 inner elements of a unit's rows, in two chains of sums, which wait for each other
// half as long.
struct UnitSums {
  float first[4] = {}, second[4] = {};

  // With 8 tokens the lower 8 rows of `mma` hold their first half of the elements and the upper 8 rows the second
  // one. Either half of the weights is multiplied with both, and one of the results is left where it is: that takes
  // half the registers of zeros in the upper rows.
  __device__ __forceinline__ void add(const uint4 (&tokens)[TOKEN_TILES], uint4 weights) {
    const uint4 low = tokens[0], high = tokens[TOKEN_TILES - 1];
    const bool two = TOKEN_TILES == 2;
    const uint32 a[4] = {low.x, two ? high.x : low.y, two ? low.y : low.z, two ? high.y : low.w};
    const uint32 b[4] = {two ? low.z : low.x, two ? high.z : low.y, two ? low.w : low.z, two ? high.w : low.w};
    const uint32 weights_a[2] = {weights.x, two ? weights.y : weights.z},
                 weights_b[2] = {two ? weights.z : weights.y, weights.w};
    mma_16x8x16<Element>(first, a, weights_a);
    mma_16x8x16<Element>(second, b, weights_b);
  }

  // Of token 8 * tile + g, with row 2q + i of the unit.
  __device__ __forceinline__ float of(int tile, int i) const {
    return first[2 * tile + i] + second[TOKEN_TILES == 2 ? 2 * tile + i : 2 + i];
  }
};

// This warp's part of the stage that comes next.
__device__ __forceinline__ void multiply_stage(UnitSums& sums, StreamShared& shared, const StreamPlace& place,
                                               Ring<STAGES>& at, const StreamInput& input, int stage) {
  const Element* from = shared.ring[at.stage][place.g] + place.first;
  wait(shared_address(&shared.filled[at.stage]), at.parity);
  uint4 weights[STAGE_STEPS];
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) weights[s] = load_16(from + s * STEP);
  __syncwarp();  // so that the lanes arrive in one instruction
  arrive(shared_address(&shared.read[at.stage]));
  at.advance();
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) {
    uint4 tokens[TOKEN_TILES];
#pragma unroll
    for (int i = 0; i < TOKEN_TILES; i++) tokens[i] = input.piece(i, stage, s);
    sums.add(tokens, weights[s]);
  }
}

// Lays the warps' sums side by side; `total` reads them from then on.
__device__ __forceinline__ void share_sums(float* to, const UnitSums& sums, const StreamPlace& place) {
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
    *reinterpret_cast<float2*>(to + (8 * t + place.g) * UNIT + 2 * place.q) =
        make_float2(sums.of(t, 0), sums.of(t, 1));
  }
}

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
  constexpr int UNROLLED = RESIDENT ? ROW_STAGES : 1;
  Ring<STAGES> at;
#pragma unroll 1
  for (int group = 0; unit_here(group * GROUP) < num_units; group++) {
    UnitSums sums[GROUP];
    input.begin_group();
#pragma unroll UNROLLED
    for (int stage = 0; stage < ROW_STAGES; stage++) {
#pragma unroll
      for (int u = 0; u < GROUP; u++) {
        if (unit_here(group * GROUP + u) < num_units) multiply_stage(sums[u], shared, place, at, input, stage);
      }
      input.end_stage(stage);
    }
#pragma unroll
    for (int u = 0; u < GROUP; u++) share_sums(shared.sums[group % 2][place.warp][u], sums[u], place);
    place.sync_warps();
    if (threadIdx.x / TEAM == group % NUM_TEAMS) finish(group);
  }
}
