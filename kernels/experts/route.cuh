// The experts of one token, by a warp: a lane has every 32nd expert.
//
//   weights = softmax(logits) of the PER_TOKEN highest logits, RENORMALISED: of those alone
//
// Of equal logits the first comes first. Whatever the logits are, NaN among them, each expert is one that exists,
// and no token has one twice.

#pragma once

#include "common/common.cuh"

#ifndef NUM_EXPERTS
#define NUM_EXPERTS 64
#endif
#ifndef PER_TOKEN
#define PER_TOKEN 8
#endif
#ifndef RENORMALISED
#define RENORMALISED 0
#endif

constexpr int PER_LANE = ceil_div(NUM_EXPERTS, WARP_SIZE);
constexpr int NOBODY = 0x7fffffff;
static_assert(PER_LANE <= 32, "a bit for each expert of a lane");
static_assert(PER_TOKEN <= WARP_SIZE && PER_TOKEN <= NUM_EXPERTS, "a lane keeps one of the chosen");

// Lane `i` below PER_TOKEN has the expert that comes i-th, and its weight.
struct Route {
  int expert;
  float weight;
};

// `logits` [NUM_EXPERTS], of the warp's token.
__device__ __forceinline__ Route route(const Element* __restrict__ logits) {
  const int lane = threadIdx.x % WARP_SIZE;
  float values[PER_LANE], highest = NEGATIVE_INFINITY, all = 0.0f;
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) {
    const int expert = lane + i * WARP_SIZE;
    values[i] = NEGATIVE_INFINITY;
    if (expert < NUM_EXPERTS) {
      const float logit = to_float(logits[expert]);
      if (logit == logit) values[i] = logit;
    }
    highest = fmaxf(highest, values[i]);
  }
  highest = warp_max(highest);
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) all += expf(values[i] - highest);
  all = warp_sum(all);

  uint32 taken = 0;  // of this lane's experts
  int kept = 0;
  float weight = 0.0f, chosen = 0.0f;
#pragma unroll 1
  for (int slot = 0; slot < PER_TOKEN; slot++) {
    float best = NEGATIVE_INFINITY;
    int expert = NOBODY;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
      const bool is_there = lane + i * WARP_SIZE < NUM_EXPERTS && (taken >> i & 1) == 0;
      if (is_there && (expert == NOBODY || values[i] > best)) {
        best = values[i];
        expert = lane + i * WARP_SIZE;
      }
    }
#pragma unroll
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(FULL_WARP, best, step);
      const int other_expert = __shfl_xor_sync(FULL_WARP, expert, step);
      if (other > best || (other == best && other_expert < expert)) {
        best = other;
        expert = other_expert;
      }
    }
    if (expert % WARP_SIZE == lane) taken |= 1u << expert / WARP_SIZE;
    const float likely = expf(best - highest);
    chosen += likely;
    if (slot == lane) {
      kept = expert;
      weight = likely;
    }
  }
  return {kept, weight / (RENORMALISED ? chosen : all)};
}
