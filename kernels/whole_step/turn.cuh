// Attention of a warp to one tile of cached tokens with one query, for persistent_decode.cu: no more than a tile
// for each warp, and every column of its products is the same query. So every lane has one token's weight.

#pragma once

#include "common/online_softmax.cuh"
#include "whole_step/inputs.cuh"
#include "whole_step/tiles.cuh"

// What a lane's column of a product has of a row: even or odd words of its pieces (`multiply_unit`).
template <int STEPS>
__device__ __forceinline__ void take_words(uint32 (&words)[STEPS][2], const Element* row) {
  const Place place;
#pragma unroll
  for (int s = 0; s < STEPS; s++) choose_words(words[s], load_16(row + s * STEP + place.q * PIECE), place.g % 2);
}

// The score of token 8q + g of the tile.
__device__ __forceinline__ float score_of_lane(const CachedTile& tile, const uint32 (&query)[HEAD_SIZE / STEP][2]) {
  const Place place;
  float sums[TILE_TOKENS / PIECE][4] = {};  // of tokens g + 8j, the same in all columns
  float scores[TILE_TOKENS / PIECE];
#pragma unroll
  for (int s = 0; s < HEAD_SIZE / STEP; s++) {
#pragma unroll
    for (int j = 0; j < TILE_TOKENS / PIECE; j++) multiply_unit(sums[j], tile.keys[j][s], query[s]);
  }
#pragma unroll
  for (int j = 0; j < TILE_TOKENS / PIECE; j++) scores[j] = sums[j][0] + sums[j][3];
  return place.q < 2 ? (place.q ? scores[1] : scores[0]) : (place.q == 2 ? scores[2] : scores[3]);
}

// The state of the tile's softmax to shared memory. Tokens from `num_tokens` on are left out; `scale` makes units
// of log2. The sum is that of the weights as they multiply values: by a row of ones.
__device__ __forceinline__ void attend_tile(Shared& shared, CachedTile& tile, int num_tokens, float scale) {
  static_assert(HEAD_PIECES == 2 * 4 && TILE_TOKENS == WARP_SIZE, "two dimensions and a token for each lane");
  const uint32 one = pack_pair<Element>(1.0f, 1.0f);
  const Place place;
  uint32 query[HEAD_SIZE / STEP][2], input[1][2];
  take_words(query, shared.vectors[0][0]);
  Element* const weights = shared.weights[place.warp][0];
  const int token = place.q * PIECE + place.g;
  float score = score_of_lane(tile, query) * scale;
  if (token >= num_tokens) score = NEGATIVE_INFINITY;
  const float highest = warp_max<16>(score);
  weights[token] = from_float<Element>(exp2_below(score, highest));
  if (num_tokens < TILE_TOKENS) tile.clear_values(num_tokens);
  __syncwarp();
  take_words(input, weights);
  float sums[HEAD_PIECES][4] = {}, all[4] = {};
#pragma unroll
  for (int i = 0; i < HEAD_PIECES; i++) multiply_unit(sums[i], tile.values[i], input[0]);
  multiply_unit(all, make_uint4(one, one, one, one), input[0]);
  // Dimensions g + 8i, of which the lane writes those of i = q and i = q + 4.
  float* const output = shared.output[place.warp][0] + place.q * PIECE + place.g;
#pragma unroll
  for (int i = 0; i < HEAD_PIECES; i += 4) {
    float of[4];
#pragma unroll
    for (int j = 0; j < 4; j++) of[j] = sums[i + j][0] + sums[i + j][3];
    output[i * PIECE] = place.q < 2 ? (place.q ? of[1] : of[0]) : (place.q == 2 ? of[2] : of[3]);
  }
  if (place.lane == 0) shared.state[place.warp][0] = make_float2(highest, all[0] + all[3]);
}
