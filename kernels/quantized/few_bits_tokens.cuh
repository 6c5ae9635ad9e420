// Input rows in shared memory beside a tile's weights (few_bits_tile.cuh), and their products by warps.

#pragma once

#include "quantized/few_bits_tile.cuh"

constexpr int TOKEN_PIECES = CHUNK / PIECE;  // of an input row's chunk

struct TokenStage {
  unsigned char bytes[TOKENS * TOKEN_PIECES * 16];
};

// Where a piece of an input row lies: as with weights, but pieces that lanes read at the same time are STEPS apart.
__device__ __forceinline__ int token_place(int token, int piece) {
  return (token * TOKEN_PIECES + (piece ^ piece / 8 % 2 * 2 ^ token % 2)) * 16;
}

// The products of a chunk are added. NOTE: products that add to the same sums stand far apart, as they wait for
// each other.
__device__ __forceinline__ void multiply(WarpSums& warp, const WeightStage& weight_stage,
                                         const TokenStage& token_stage, const GroupScales& groups,
                                         const Lane& lane) {
  constexpr int TOGETHER = ROW_TILES < 4 ? TOKEN_TILES : ceil_div(TOKEN_TILES, 2);
  const Weights weights(weight_stage, lane);
  const PairScales by(groups);
  const int first_token = token_place(lane.g, lane.piece * STEPS);
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    uint32 a[2][ROW_TILES][4];
    weights.widen(a, step, by);
    const unsigned char* tokens = token_stage.bytes + (first_token ^ step * 16);
#pragma unroll
    for (int first = 0; first < TOKEN_TILES; first += TOGETHER) {
      uint4 b[TOGETHER];
#pragma unroll
      for (int n = 0; n < TOGETHER; n++) {
        if (first + n < TOKEN_TILES) b[n] = load_16(tokens + (first + n) * 8 * TOKEN_PIECES * 16);
      }
#pragma unroll
      for (int n = 0; n < TOGETHER; n++) b[n] = in_order_of_weights(b[n]);
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int n = 0; n < TOGETHER; n++) {
          if (first + n >= TOKEN_TILES) break;
#pragma unroll
          for (int m = 0; m < ROW_TILES; m++) {
            float (&d)[4] = *reinterpret_cast<float (*)[4]>(&warp.sums[m][4 * (first + n)]);
            if (half == 0) {
              mma_16x8x16<Element>(d, a[0][m], {b[n].x, b[n].y});
            } else {
              mma_16x8x16<Element>(d, a[1][m], {b[n].z, b[n].w});
            }
          }
        }
      }
    }
  }
}
