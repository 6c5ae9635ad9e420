// The norms that kernels do, and what becomes of a row's element once its mean is gone and its size is one:
// LayerNorm (Ba et al. 2016, arXiv 1607.06450) and three kinds of RMSNorm (Zhang and Sennrich 2019, arXiv
// 1910.07467).

#pragma once

#include "common/common.cuh"

enum NormKind {
  NO_NORM = 0,
  LAYER_NORM = 1,
  RMS_NORM = 2,         // rounded before it is scaled, as Llama's code does, and behind that
  EXACT_RMS_NORM = 3,   // rounded behind the scale alone
  OFFSET_RMS_NORM = 4,  // the same, multiplied by one more than the weight
};

// What an element of a row whose size is one is multiplied by.
template <int KIND>
__device__ __forceinline__ float gain(float weight) {
  return KIND == OFFSET_RMS_NORM ? 1.0f + weight : weight;
}

template <int KIND>
__device__ __forceinline__ float scaled_by_norm(float centred, float weight, float shift) {
  if (KIND == LAYER_NORM) return centred * weight + shift;
  return (KIND == RMS_NORM ? to_float(from_float<Element>(centred)) : centred) * gain<KIND>(weight);
}
