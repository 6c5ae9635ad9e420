// A warp's part of a product with weights of few bits, a unit of 8 rows at a time: what becomes of a stage that it
// has in registers, where its input is, too. Included by streamed_product.cuh.

#pragma once

#include "products/streamed_input.cuh"
#include "quantized/scale_words.cuh"

// The product of tokens with a unit's rows, each group of inner elements multiplied by its scale.
struct StreamSums {
  float sums[2] = {};

  __device__ __forceinline__ float of(int i) const { return sums[i]; }
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
      for (int i = 0; i < 2; i++) of_part[i] += chains[part * (CHAINS / PARTS) + chain].of(i);
    }
    scales.add(sums.sums, of_part, input.sum(stage, part), part);
  }
}
