// How likely a token is, in whole numbers, so that sums are exact in any order, on any device.
//
//   key    = round(2^18 * max(31 + log2(p / p_best), 0))      0 .. 31 * 2^18, more is more likely
//   weight = round(2^30 * 2^(key / 2^18 - 31))                0 .. 2^30, in proportion to the probability
//
// Every step is one IEEE operation, rounded by itself (no fused multiply-add):
// pagedchat/ops/sampling/token_weight.py does the same ones and gets the same bits.

#pragma once

#include "common/common.cuh"

constexpr int KEY_FRACTION_BITS = 18;
constexpr int KEY_BITS = 23;
constexpr uint32 BEST_KEY = 31u << KEY_FRACTION_BITS;

struct TokenKeys {
  float best;   // largest logit of the row
  float scale;  // log2(e) / temperature

  // The float between 32 and 64 has just as many fraction bits as the key: adding 63 rounds to them.
  __device__ __forceinline__ uint32 of(float logit) const {
    const float distance = __fmul_rn(__fsub_rn(logit, best), scale);
    return __float_as_uint(__fadd_rn(fmaxf(distance, -31.0f), 63.0f)) - __float_as_uint(32.0f);
  }
};

// Half of 2^fraction by a polynomial in the fraction's integer (relative error 2e-7), then the exponent is put in.
__device__ __forceinline__ uint32 weight_of(uint32 key) {
  const uint32 fraction = key & ((1u << KEY_FRACTION_BITS) - 1);
  const float x = __uint_as_float(fraction | __float_as_uint(0x1p23f)) - 0x1p23f;  // exact; no slow conversion
  float y = 0x1.e9739cp-101f;
  y = __fadd_rn(__fmul_rn(y, x), 0x1.2778b2p-80f);
  y = __fadd_rn(__fmul_rn(y, x), 0x1.c91cd6p-60f);
  y = __fadd_rn(__fmul_rn(y, x), 0x1.ebdb58p-40f);
  y = __fadd_rn(__fmul_rn(y, x), 0x1.62e4bap-20f);
  y = __fadd_rn(__fmul_rn(y, x), 0.5f);
  return __float2uint_rn(__uint_as_float(__float_as_uint(y) + (key >> KEY_FRACTION_BITS << 23)));
}
