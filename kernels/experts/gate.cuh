// What is between the two products of an expert: its gate and its value become one number, as if both had been
// stored in between.
//
//   silu(gate) * value; CLAMPED, as gpt-oss has it: gate * sigmoid(sharpness * gate) * (value + 1), gates no larger
//   than a limit and values no further than that from zero

#pragma once

#include "common/common.cuh"

#ifndef GATE
#define GATE 0  // 0: rows of the weights stand alone, 1: they are pairs, 2: and CLAMPED
#endif

constexpr bool PAIRED = GATE != 0, CLAMPED = GATE == 2;

__device__ __forceinline__ float rounded(float x) { return to_float(from_float<Element>(x)); }

struct Gate {
  float sharpness, limit;

  // NaN stays NaN.
  __device__ __forceinline__ float operator()(float gate, float value) const {
    gate = rounded(gate);
    value = rounded(value);
    if (CLAMPED) {
      gate = gate > limit ? limit : gate;
      value = value > limit ? limit : value < -limit ? -limit : value;
      value += 1.0f;
    }
    const float x = CLAMPED ? -sharpness * gate : -gate;
    return gate / (1.0f + (sizeof(Element) == 4 ? expf(x) : __expf(x))) * value;
  }
};

// The sum with an element of `bias`; null: there is none.
__device__ __forceinline__ float with_bias(float sum, const Element* bias, int64 row) {
  return bias == nullptr ? sum : __fadd_rn(sum, to_float(bias[row]));
}
