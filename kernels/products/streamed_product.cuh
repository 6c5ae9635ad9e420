// A few tokens times a matrix that is large enough for the memory's speed to be all that counts; its weights come
// through the ring of streamed_ring.cuh.
//
// All warps but the one that copies share the inner elements of every stage, with weights as the 8-column operand
// of `mma` and the tokens as its rows. Their input stays in registers where it fits; otherwise it is read again for
// every GROUP of units of 8 rows, which are made at a time. Teams of warps take turns with finishing groups, while
// the others go on.

#pragma once

#include "products/streamed_norm.cuh"

#if WEIGHT_KIND != WHOLE_WEIGHTS
// The product of tokens with a unit's rows, each group of inner elements multiplied by its scale.
struct StreamSums {
  float sums[2] = {};

  __device__ __forceinline__ float of(int i) const { return sums[i]; }
};

// Some scales that follow each other, as bits.
template <int COUNT>
struct ScaleWords {
  uint32 words[ceil_div(COUNT, 2)];

  __device__ __forceinline__ void load(const __half* from) {
    if constexpr (COUNT % 4 == 0 && ROW_GROUPS % 4 == 0) {
#pragma unroll
      for (int i = 0; i < COUNT / 4; i++) {
        const uint2 pair = reinterpret_cast<const uint2*>(from)[i];
        words[2 * i] = pair.x, words[2 * i + 1] = pair.y;
      }
    } else if constexpr (COUNT % 2 == 0 && ROW_GROUPS % 2 == 0) {
#pragma unroll
      for (int i = 0; i < COUNT / 2; i++) words[i] = reinterpret_cast<const uint32*>(from)[i];
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i++) {
        const uint32 bits = __half_as_ushort(from[i]);
        words[i / 2] = i % 2 == 0 ? bits : words[i / 2] | bits << 16;
      }
    }
  }
  __device__ __forceinline__ float of(int i) const {
    return to_float(__ushort_as_half(static_cast<unsigned short>(words[i / 2] >> 16 * (i % 2))));
  }
  // Something of all of them.
  __device__ __forceinline__ uint32 bits() const {
    uint32 bits = 0;
#pragma unroll
    for (int i = 0; i < ceil_div(COUNT, 2); i++) bits |= words[i];
    return bits;
  }
};

// Scales, and minimums if there are, of a warp's parts of a stage: of rows 2q and 2q + 1 of the unit.
struct StageScales {
#if SCALE_GROUP
  ScaleWords<PARTS> scales[2], minimums[MINIMUMS ? 2 : 1];
#endif

  __device__ __forceinline__ StageScales(const StreamShared& shared, const StreamPlace& place, int index,
                                         int stage) {
#if SCALE_GROUP
    const auto& from = shared.group_scales[index % SCALE_PLACES];
    const int first = (stage * STAGE_FEATURES + place.warp * STAGE_SEGMENT) / SCALE_GROUP;
    const int group = min(first, ROW_GROUPS - PARTS);  // behind the end of a row there is no input
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int at = (2 * place.q + i) * ROW_GROUPS + group;
      scales[i].load(from[0] + at);
      if (MINIMUMS) minimums[i].load(from[MINIMUMS] + at);
    }
#endif
  }
  __device__ __forceinline__ uint32 bits() const {
#if SCALE_GROUP
    return scales[0].bits() | scales[1].bits() | (MINIMUMS ? minimums[0].bits() | minimums[MINIMUMS].bits() : 0);
#else
    return 0;
#endif
  }
  __device__ __forceinline__ void add(float (&sums)[2], const float (&of_part)[2], InputSums input,
                                      int part) const {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float product = of_part[i] - (Raw::SHIFTED ? input.excess : 0.0f);
#if SCALE_GROUP
      sums[i] += product * scales[i].of(part);
      if (MINIMUMS) sums[i] += input.sum * minimums[MINIMUMS * i].of(part);
#else
      sums[i] += product;
#endif
    }
  }
};

// Chains of products that do not wait for each other: all parts, or of a single one several.
constexpr int CHAINS = PARTS > 1 || STAGE_STEPS == 1 ? PARTS
                       : STAGE_STEPS % 4 == 0        ? 4
                       : STAGE_STEPS % 2 == 0        ? 2
                                                     : 1;
constexpr int CHAIN_STEPS = STAGE_STEPS / CHAINS;

__device__ __forceinline__ void add_stage(StreamSums& sums, const StreamInput& input, int stage,
                                          const StoredPiece (&weights)[STAGE_STEPS], const StageScales& scales) {
  UnitSums chains[CHAINS];
#pragma unroll
  for (int i = 0; i < CHAIN_STEPS; i++) {
#pragma unroll
    for (int chain = 0; chain < CHAINS; chain++) {
      const int s = chain * CHAIN_STEPS + i;
      chains[chain].add(input.piece(stage, s), Raw::piece(weights[s]));
    }
  }
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    float of_part[2] = {};
#pragma unroll
    for (int chain = 0; chain < CHAINS / PARTS; chain++) {
#pragma unroll
      for (int i = 0; i < 2; i++) of_part[i] += raw_sum(chains[part * (CHAINS / PARTS) + chain], i);
    }
    scales.add(sums.sums, of_part, input.sum(stage, part), part);
  }
}
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
                                               Ring<STAGES>& at, const StreamInput& input, int index, int stage) {
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

// Lays the warps' sums side by side; `total` reads them from then on.
__device__ __forceinline__ void share_sums(float* to, const StreamSums& sums, const StreamPlace& place) {
  *reinterpret_cast<float2*>(to + place.g * UNIT + 2 * place.q) = make_float2(sums.of(0), sums.of(1));
}

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
  constexpr int UNROLLED = RESIDENT ? ROW_STAGES : 1;
  Ring<STAGES> at;
#pragma unroll 1
  for (int group = 0; unit_here(group * GROUP) < num_units; group++) {
    StreamSums sums[GROUP];
    input.begin_group();
#pragma unroll UNROLLED
    for (int stage = 0; stage < ROW_STAGES; stage++) {
      input.begin_stage();
#pragma unroll
      for (int u = 0; u < GROUP; u++) {
        const int index = group * GROUP + u;
        if (unit_here(index) < num_units) multiply_stage(sums[u], shared, place, at, input, index, stage);
      }
      input.end_stage(stage);
    }
#pragma unroll
    for (int u = 0; u < GROUP; u++) share_sums(shared.sums[group % 2][place.warp][u], sums[u], place);
    place.sync_warps();
    if (threadIdx.x / TEAM == group % NUM_TEAMS) finish(group);
  }
}
