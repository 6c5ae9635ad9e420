// A warp's product of up to 8 tokens with 8 rows of a weight, weights as the 8-column operand of `mma` and tokens
// as its rows.

#pragma once

#include "common/row_pieces.cuh"

// The product of tokens with 32 inner elements of a unit's rows, in two chains of sums, which wait for each other
// half as long.
struct UnitSums {
  float first[4] = {}, second[4] = {};

  // The lower 8 rows of `mma` hold the tokens' first half of the elements and the upper 8 rows the second one.
  // Either half of the weights is multiplied with both, and one of the results is left where it is: that takes half
  // the registers of zeros in the upper rows.
  __device__ __forceinline__ void add(uint4 tokens, uint4 weights) {
    const uint32 both[4] = {tokens.x, tokens.y, tokens.z, tokens.w};
    const uint32 weights_a[2] = {weights.x, weights.z}, weights_b[2] = {weights.y, weights.w};
    mma_16x8x16<Element>(first, both, weights_a);
    mma_16x8x16<Element>(second, both, weights_b);
  }

  // Of token g, with row 2q + i of the unit.
  __device__ __forceinline__ float of(int i) const { return first[i] + second[2 + i]; }
};

__device__ __forceinline__ uint32 first_word(uint4 piece) { return piece.x; }
__device__ __forceinline__ uint32 first_word(uint2 piece) { return piece.x; }
__device__ __forceinline__ uint32 first_word(uint32 piece) { return piece; }

// True, and not before all lanes of the warp have what `bits` were made of.
// NOTE: an arrival does not wait for loads that stand before it. They may wait behind others, and registers that
// are spilled, for longer than it takes the next copy to get there. No compiler knows that threads have no second
// coordinate here, so it has to look.
__device__ __forceinline__ bool all_are_there(uint32 bits) { return !__any_sync(FULL_WARP, bits & threadIdx.y); }

// Of pieces that were asked for, and `others`.
template <typename Piece, int COUNT>
__device__ __forceinline__ bool all_are_there(const Piece (&pieces)[COUNT], uint32 others = 0) {
  uint32 bits = others;
#pragma unroll
  for (int s = 0; s < COUNT; s++) bits |= first_word(pieces[s]);
  return all_are_there(bits);
}
