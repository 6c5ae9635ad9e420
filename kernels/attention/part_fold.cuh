// Partial attention of one query row put together part after part, always in one order:
//
//   output = sum_i e^lse[i] part[i] / sum_i e^lse[i]
//
// for parts i from the last to the first. A kernel that walks through all parts and one that gets them from memory
// do the same operations, each rounded by itself, and so give the same bits.

#pragma once

#include "common/common.cuh"

// The factors of one step of a row: what was put together so far, and the part that joins it.
struct PartFold {
  float top = NEGATIVE_INFINITY;  // the highest log-sum-exp so far
  float total = 0.0f;             // of e^(lse - top)
  float before, part;             // factors of the sums so far and of the part's result

  // False: nothing was seen in the part.
  __device__ __forceinline__ bool add(float lse) {
    if (lse == NEGATIVE_INFINITY) return false;
    const float raised = fmaxf(top, lse);
    before = exp2_fast(__fmul_rn(__fadd_rn(top, -raised), LOG2_E));
    part = exp2_fast(__fmul_rn(__fadd_rn(lse, -raised), LOG2_E));
    total = fmaf(total, before, part);
    top = raised;
    return true;
  }

  __device__ __forceinline__ float sum(float so_far, float result) const {
    return fmaf(result, part, __fmul_rn(so_far, before));
  }

  // The same for what joins without a result, as a sink does.
  __device__ __forceinline__ float shrunk(float so_far) const { return __fmul_rn(so_far, before); }

  __device__ __forceinline__ float inverse() const { return total > 0.0f ? __fdiv_rn(1.0f, total) : 0.0f; }
  __device__ __forceinline__ float log_sum_exp() const {
    return total > 0.0f ? top + logf(total) : NEGATIVE_INFINITY;
  }
};
