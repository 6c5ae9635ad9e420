// Attention of a warp to cached tokens as products of its lanes: all heads of a group are columns of one product.

#pragma once

#include "common/online_softmax.cuh"
#include "whole_step/tiles.cuh"

// The softmax of a warp's tokens: a lane has heads 2q and 2q + 1 of the group (the last one again, past the end),
// dimensions g + 8i.
struct Attention {
  static constexpr int HEADS = GROUP_SIZE > 1 ? 2 : 1;  // of a lane
  float sums[HEAD_PIECES / 2][4] = {};
  float highest[HEADS], all[HEADS];

  __device__ __forceinline__ Attention() {
#pragma unroll
    for (int h = 0; h < HEADS; h++) highest[h] = NEGATIVE_INFINITY, all[h] = 0.0f;
  }

  // Scores of the tile's tokens in units of log2; what comes after `num_tokens` is left out.
  __device__ __forceinline__ void score(float (&scores)[2][4], const CachedTile& tile, const uint4 (&query)[2],
                                        int num_tokens, float scale) const {
    const Place place;
    float products[2][4] = {};
#pragma unroll
    for (int s = 0; s < HEAD_SIZE / STEP; s++) {
#pragma unroll
      for (int b = 0; b < 2; b++)
        multiply_step(products[b], tile.keys[2 * b][s], tile.keys[2 * b + 1][s], query[s]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const int token = i / 2 * 8 + place.g;
      scores[i / 4][i % 4] = token < num_tokens ? products[i / 4][i % 4] * scale : NEGATIVE_INFINITY;
    }
  }

  // The weights of the tile's tokens to `weights`; what was summed before is made smaller.
  __device__ __forceinline__ void weigh(Element (&weights)[GROUP_SIZE][WEIGHT_STRIDE],
                                        const float (&scores)[2][4]) {
    const Place place;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const float most = fmaxf(fmaxf(scores[0][h], scores[0][2 + h]), fmaxf(scores[1][h], scores[1][2 + h]));
      const float now = fmaxf(warp_max<16, 4>(most), highest[h]), keep = exp2_below(highest[h], now);
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float weight = exp2_below(scores[j / 2][j % 2 * 2 + h], now);
        sum += weight;
        if (2 * place.q + h < GROUP_SIZE) weights[2 * place.q + h][j * 8 + place.g] = from_float<Element>(weight);
      }
      all[h] = all[h] * keep + sum, highest[h] = now;
#pragma unroll
      for (int m = 0; m < HEAD_PIECES / 2; m++) {
        sums[m][h] *= keep, sums[m][2 + h] *= keep;
      }
    }
  }

  __device__ __forceinline__ void add(const CachedTile& tile, uint4 weights) {
#pragma unroll
    for (int m = 0; m < HEAD_PIECES / 2; m++) {
      multiply_step(sums[m], tile.values[2 * m], tile.values[2 * m + 1], weights);
    }
  }

  __device__ __forceinline__ void share(Shared& shared) const {
    const Place place;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const int head = 2 * place.q + h;
      const float total = warp_sum<16, 4>(all[h]);
      if (head >= GROUP_SIZE) continue;
      float* output = shared.output[place.warp][head] + place.g;
#pragma unroll
      for (int i = 0; i < HEAD_PIECES; i++) output[i * PIECE] = sums[i / 2][i % 2 * 2 + h];
      if (place.g == 0) shared.state[place.warp][head] = make_float2(highest[h], total);
    }
  }
};
