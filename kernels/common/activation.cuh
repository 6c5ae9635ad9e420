// What comes behind a product: an activation, or with PAIRED rows activation(gate) * value (gated feed-forward,
// Shazeer 2020, arXiv 2002.05202).

#pragma once

#include "common/common.cuh"

#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#ifndef PAIRED
#define PAIRED 0
#endif

enum Activation { NO_ACTIVATION = 0, RELU = 1, SILU = 2 };

__device__ __forceinline__ float activate(float x) {
  if (ACTIVATION == RELU) return fmaxf(x, 0.0f);
  if (ACTIVATION == SILU) return x / (1.0f + __expf(-x));
  return x;
}

__device__ __forceinline__ float rounded(float x) { return to_float(from_float<Element>(x)); }

// Each of the four as if the gate and the value had been stored in between.
__device__ __forceinline__ float4 gated(float4 gate, float4 value) {
  return make_float4(activate(rounded(gate.x)) * rounded(value.x), activate(rounded(gate.y)) * rounded(value.y),
                     activate(rounded(gate.z)) * rounded(value.z), activate(rounded(gate.w)) * rounded(value.w));
}
