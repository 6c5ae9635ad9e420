// From a dot product to a score in units of log2: scale, soft-cap and ALiBi; which keys a query sees; and its sink.
//
//   score = log2(e) * (soft_cap(scale * q.k) + slope * (key_position - query_position))
//
// Compiled in where wanted: SOFT_CAP (Gemma 2, arXiv 2408.00118), ALIBI (Press et al. 2022, arXiv 2108.12409),
// SINKS (Xiao et al. 2023, arXiv 2309.17453; learned for each head in gpt-oss, arXiv 2508.10925).

#pragma once

#include "common/common.cuh"

#ifndef SOFT_CAP
#define SOFT_CAP 0
#endif
#ifndef ALIBI
#define ALIBI 0
#endif
#ifndef SINKS
#define SINKS 0
#endif

// --- scores -----------------------------------------------------------------------------------------------------

// NOTE: what enters the softmax is the absolute error of a score. Next to 16-bit elements that of the short form
// (cap * 1e-7) is nothing; next to float32 it is not, and the exact function is needed.
__device__ __forceinline__ float tanh_of(float x) {
#ifdef ELEMENT
  if constexpr (sizeof(Element) == 4) return tanhf(x);
#endif
  return 1.0f - __fdividef(2.0f, 1.0f + exp2_fast(2.0f * LOG2_E * x));
}

// The two factors that are the same for all scores of a launch.
struct ScoreScale {
  float dot;  // dot product -> units of log2, or -> parts of the cap
  float cap;  // the cap in units of log2

  __device__ __forceinline__ ScoreScale(float scale, float soft_cap)
      : dot(SOFT_CAP ? scale / soft_cap : scale * LOG2_E), cap(soft_cap * LOG2_E) {}

  __device__ __forceinline__ float score(float product) const {
    return SOFT_CAP ? cap * tanh_of(dot * product) : dot * product;
  }

  // `slope` as `load_slope` gives it, `distance` = key_position - query_position.
  __device__ __forceinline__ float score(float product, float slope, int distance) const {
    return ALIBI ? score(product) + slope * distance : score(product);
  }
};

// ALiBi slope of a head in units of log2; alibi_slopes: [num_heads], not read without ALIBI.
__device__ __forceinline__ float load_slope(const float* alibi_slopes, int head) {
  return ALIBI ? alibi_slopes[head] * LOG2_E : 0.0f;
}

// --- which keys a query sees ------------------------------------------------------------------------------------

// `sliding_window`: tokens that a query sees, itself included; 2^31 - 1 for all.
__device__ __forceinline__ bool sees(int query_position, int key_position, int sliding_window) {
  return key_position <= query_position && key_position > query_position - sliding_window;
}

__device__ __forceinline__ int first_seen(int query_position, int sliding_window) {
  return max(0, query_position - sliding_window + 1);
}

// --- the sink ---------------------------------------------------------------------------------------------------

// The sink of a head in units of log2; sinks: [num_heads], not read without SINKS. It is a score without a key,
// which takes its share of the weights and gives no value: one more partial attention of weight 1 and value 0.
// Kernels add it where a row is finished, behind every merge, and so once.
__device__ __forceinline__ float load_sink(const float* sinks, int head) {
  return SINKS ? sinks[head] * LOG2_E : NEGATIVE_INFINITY;
}
