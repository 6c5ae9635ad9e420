// What comes behind a product: an activation, or with PAIRED rows activation(gate) * value (gated feed-forward,
// Shazeer 2020, arXiv 2002.05202). GELU is that of Hendrycks and Gimpel 2016, arXiv 1606.08415, exact or by tanh;
// squared ReLU that of So et al. 2021, arXiv 2109.08668.

#pragma once

#include "common/common.cuh"

#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#ifndef PAIRED
#define PAIRED 0
#endif

enum Activation { NO_ACTIVATION = 0, RELU = 1, SILU = 2, GELU = 3, GELU_TANH = 4, SQUARED_RELU = 5 };

__device__ __forceinline__ float activate(float x) {
  if (ACTIVATION == RELU) return fmaxf(x, 0.0f);
  if (ACTIVATION == SILU) return sizeof(Element) == 4 ? x / (1.0f + expf(-x)) : __fdividef(x, 1.0f + __expf(-x));
  if (ACTIVATION == GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (ACTIVATION == GELU_TANH) return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  if (ACTIVATION == SQUARED_RELU) return x > 0.0f ? x * x : 0.0f;
  return x;
}

__device__ __forceinline__ float rounded(float x) { return to_float(from_float<Element>(x)); }

// Each of the four as if the gate and the value had been stored in between.
__device__ __forceinline__ float4 gated(float4 gate, float4 value) {
  return make_float4(activate(rounded(gate.x)) * rounded(value.x), activate(rounded(gate.y)) * rounded(value.y),
                     activate(rounded(gate.z)) * rounded(value.z), activate(rounded(gate.w)) * rounded(value.w));
}
