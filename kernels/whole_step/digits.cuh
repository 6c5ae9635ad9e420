// The input of a screened vocabulary (screen.cuh): normalised rows as digits of 8 bits, and their
// lengths.

#pragma once

#include "whole_step/inputs.cuh"

#if SCREENED

// Two neighbouring elements of a token's row as digits: `digit_scale` times their value, to the nearest integer.
// For a row that digits have no room for they mean nothing, see `norm_of_rows`.
__device__ __forceinline__ void keep_digits(Shared& shared, int token, int element, uint32 pair,
                                            float digit_scale) {
  constexpr uint32 HALVES = 0x808080u;  // of 256, of every digit: makes them signed
  float low, high;
  unpack_pair<Element>(pair, low, high);
  const uint32 first = (__float2int_rn(low * digit_scale) + HALVES) ^ HALVES;
  const uint32 second = (__float2int_rn(high * digit_scale) + HALVES) ^ HALVES;
#pragma unroll
  for (int d = 0; d < DIGITS; d++)
    *reinterpret_cast<unsigned short*>(&shared.screening.digits[token][d][element]) =
        first >> 8 * d & 0xffu | (second >> 8 * d & 0xffu) << 8;
}

// The columns of the product, g of mma_integers.cuh: four for a token, its digits and one that nobody needs.
__device__ __forceinline__ void load_digits(uint2 (&digits)[PART_STEPS], const Shared& shared, const Place& place) {
  const int token = place.g / 4 % NUM_TOKENS, digit = min(place.g % 4, DIGITS - 1);
  const int8* from = shared.screening.digits[token][digit] + place.warp % PARTS * PART + place.q * PIECE;
#pragma unroll
  for (int s = 0; s < PART_STEPS; s++) digits[s] = *reinterpret_cast<const uint2*>(from + s * STEP);
}

// How long the tokens' rows are, rounded up; infinite where digits have no room for that, or where it is no number:
// so any row of the vocabulary may be the best one then. Every warp finds that out for itself.
__device__ __forceinline__ void norm_of_rows(float (&norms)[NUM_TOKENS], const Shared& shared, float digit_scale) {
  constexpr int SEGMENT = segment_of(HIDDEN);
  const Place place;
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    float squares = 0.0f, values[PIECE];
#pragma unroll 1
    for (int k = place.lane * PIECE; k < HIDDEN; k += WARP_SIZE * PIECE) {
      unpack(load_16(shared.rows[k / SEGMENT] + t * ROW_STRIDE + k % SEGMENT), values);
#pragma unroll
      for (int i = 0; i < PIECE; i++) squares += values[i] * values[i];
    }
    const float norm = sqrtf(warp_sum(squares)) * 1.001f + 1e-30f;
    norms[t] = norm * digit_scale <= LARGEST_DIGITS ? norm : __uint_as_float(0x7f800000u);
  }
}

#endif
