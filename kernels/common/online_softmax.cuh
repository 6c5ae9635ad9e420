// The softmax of a row of scores taken piece by piece: its maximum, its sum, and how two pieces become one.
//
//   (m, l): m = max(s), l = sum(2^(s - m));     o = sum(2^(s - m) * v), the result is o / l
//   merge:  m = max(m1, m2), l = l1 * 2^(m1 - m) + l2 * 2^(m2 - m), o likewise
//
// Milakov and Gimelshein 2018 (arXiv 1805.02867). Scores and m are in units of log2. A piece without keys is
// (-inf, 0), and all functions here take it.

#pragma once

#include "common/common.cuh"

// 2^(x - m) where m is a maximum that x entered; 0, and never NaN, where nothing was seen.
__device__ __forceinline__ float exp2_below(float x, float m) {
  const float reference = m == NEGATIVE_INFINITY ? 0.0f : m;
  return exp2_fast(x - reference);
}

struct SoftmaxState {
  float m = NEGATIVE_INFINITY;
  float l = 0.0f;

  // Raises the maximum to that of scores to come; returns the factor for what was summed so far.
  __device__ __forceinline__ float raise(float maximum) {
    const float before = m;
    m = fmaxf(m, maximum);
    const float factor = exp2_below(before, m);
    l *= factor;
    return factor;
  }

  // The weight of a score not above the maximum, added to the sum.
  __device__ __forceinline__ float add(float score) {
    const float weight = exp2_below(score, m);
    l += weight;
    return weight;
  }

  // Adds a score that has no value and may be above the maximum; returns the factor for what was summed so far.
  __device__ __forceinline__ float add_sink(float sink) {
    const float factor = raise(sink);
    add(sink);
    return factor;
  }

  // 1 / l; 0 where nothing was seen, so that the result is 0 there.
  __device__ __forceinline__ float inverse_sum() const { return l > 0.0f ? 1.0f / l : 0.0f; }

  // Natural logarithm of the sum of e^score; -inf where nothing was seen.
  __device__ __forceinline__ float log_sum_exp() const { return (m + log2f(l)) * LN_2; }
};

// Four dimensions of an output, put together from pieces.
__device__ __forceinline__ float4 scaled(float4 sum, float factor) {
  return make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
}
__device__ __forceinline__ void add_scaled(float4& sum, float4 piece, float factor) {
  sum.x += piece.x * factor;
  sum.y += piece.y * factor;
  sum.z += piece.z * factor;
  sum.w += piece.w * factor;
}

// The state together with one dimension of the output, as it is put together from pieces.
struct PartialOutput {
  SoftmaxState state;
  float o = 0.0f;

  __device__ __forceinline__ void merge(float other_m, float other_l, float other_o) {
    const float factor = state.raise(other_m);
    const float other_factor = exp2_below(other_m, state.m);
    state.l += other_l * other_factor;
    o = o * factor + other_o * other_factor;
  }
};
