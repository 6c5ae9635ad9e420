// Penalties for tokens that occurred.

#pragma once

#include "common/common.cuh"

// What makes tokens that occurred already less likely.
struct Penalties {
  float repetition, reciprocal, presence, frequency;  // `reciprocal`: 1 / repetition
  const short* counts;  // [vocab_size] of the row: times in the output, below 0 if also in the prompt; or null

  __device__ __forceinline__ float apply(float logit, int token) const {
    const int count = counts[token];
    if (count == 0) return logit;
    const float times = static_cast<float>(count & 0x7fff);
    const float less = __fmul_rn(logit, logit > 0.0f ? reciprocal : repetition);
    return __fsub_rn(__fsub_rn(less, __fmul_rn(frequency, times)), times > 0.0f ? presence : 0.0f);
  }
};

// One more of a token in the counts of its row, if it has any.
__device__ __forceinline__ void count_token(short* counts, int token) {
  if (counts != nullptr && (counts[token] & 0x7fff) < 0x7fff) counts[token] += 1;
}
