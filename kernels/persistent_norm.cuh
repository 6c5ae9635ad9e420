// The norms of persistent_decode.cu. Behind a product: what a warp has collected is scaled and multiplied at once,
// and mean and factor come in when the sums of all warps meet. That saves a barrier and a pass over the rows in
// each half of a layer. Only before the vocabulary, whose rows are too many for it, rows are normalised first.

#pragma once

#include "persistent_inputs.cuh"

constexpr int NORM_WORDS = words_of(HIDDEN);
constexpr int NORM_LANES = segment_of(HIDDEN) / (2 * NORM_WORDS);

// Scales and shifts of the elements that a lane normalises, of the last norm.
struct NormWeights {
  uint32 scale[NORM_WORDS], shift[NORM_WORDS];

  // Shifts may be null, for zeros.
  __device__ __forceinline__ void load(const Element* scales, const Element* shifts) {
    const Place place;
    const int first = place.warp * segment_of(HIDDEN) / 2 + min(place.lane, NORM_LANES - 1) * NORM_WORDS;
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      scale[w] = reinterpret_cast<const uint32*>(scales)[first + w];
      shift[w] = shifts == nullptr ? 0 : reinterpret_cast<const uint32*>(shifts)[first + w];
    }
  }
};

// Sums over what a lane has of each token's row, less a mean of before: numbers far from zero are not squared.
struct Moments {
  float sums[NUM_TOKENS], squares[NUM_TOKENS];
};

// The rows that the warp has collected, less `means` and times `scale`, in place.
__device__ __forceinline__ Moments scale_rows(Shared& shared, const uint32 (&scale)[NORM_WORDS],
                                              const float (&means)[NUM_TOKENS]) {
  const Place place;
  const bool active = place.lane < NORM_LANES;
  uint32* const words = reinterpret_cast<uint32*>(shared.rows[place.warp]) + place.lane * NORM_WORDS;
  Moments moments = {};
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      float x, y, scale_x, scale_y;
      unpack_pair<Element>(active ? words[t * ROW_STRIDE / 2 + w] : 0, x, y);
      unpack_pair<Element>(scale[w], scale_x, scale_y);
      if (NORM == LAYER_NORM && active) x -= means[t], y -= means[t];
      moments.sums[t] += x + y;
      moments.squares[t] += x * x + y * y;
      if (active) words[t * ROW_STRIDE / 2 + w] = pack_pair<Element>(x * scale_x, y * scale_y);
    }
  }
  __syncwarp();
  return moments;
}

__device__ __forceinline__ void share_moments(Shared& shared, const Moments& moments, int half) {
  const Place place;
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    const float sum = warp_sum(moments.sums[t]), squares = warp_sum(moments.squares[t]);
    if (place.lane == 0) shared.moments[half][t][place.warp] = make_float2(sum, squares);
  }
}

// Mean and variance of a token's row, from the moments of all warps.
struct Spread {
  float mean, variance;

  __device__ __forceinline__ Spread(const Shared& shared, int half, int token) {
    static_assert(NUM_WARPS % 2 == 0, "moments of two warps at a time");
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w += 2) {
      const float4 two = *reinterpret_cast<const float4*>(&shared.moments[half][token][w]);
      sum += two.x + two.z, squares += two.y + two.w;
    }
    mean = NORM == LAYER_NORM ? sum * (1.0f / HIDDEN) : 0.0f;
    variance = fmaxf(squares * (1.0f / HIDDEN) - mean * mean, 0.0f);
  }
};

// The rows that the warps have collected are normalised in place, with a barrier between two passes.
__device__ __forceinline__ void normalise(Shared& shared, const NormWeights& weights, float epsilon) {
  const Place place;
  const float means[NUM_TOKENS] = {};
  uint32 ones[NORM_WORDS];
#pragma unroll
  for (int w = 0; w < NORM_WORDS; w++) ones[w] = pack_pair<Element>(1.0f, 1.0f);
  share_moments(shared, scale_rows(shared, ones, means), 0);
  sync_warps();
  uint32* const words = reinterpret_cast<uint32*>(shared.rows[place.warp]) + place.lane * NORM_WORDS;
  if (place.lane < NORM_LANES) {
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) {
      const Spread spread(shared, 0, t);
      const float factor = rsqrtf(spread.variance + epsilon);
#pragma unroll
      for (int w = 0; w < NORM_WORDS; w++) {
        float x, y, scale_x, scale_y, shift_x, shift_y;
        unpack_pair<Element>(words[t * ROW_STRIDE / 2 + w], x, y);
        unpack_pair<Element>(weights.scale[w], scale_x, scale_y);
        unpack_pair<Element>(weights.shift[w], shift_x, shift_y);
        x = (x - spread.mean) * factor, y = (y - spread.mean) * factor;
        words[t * ROW_STRIDE / 2 + w] = pack_pair<Element>(x * scale_x + shift_x, y * scale_y + shift_y);
      }
    }
  }
  __syncwarp();
}
