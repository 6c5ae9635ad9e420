// The norms of persistent_decode.cu. Behind a product: the row is scaled and multiplied at once, and mean and
// factor come in when the sums of all warps meet. That saves a barrier and a pass over the rows in each half of a
// layer, and moments of the row are rows of the product themselves (products.cuh). Only before the
// vocabulary, whose rows are too many for it, rows are normalised first.

#pragma once

#include "whole_step/inputs.cuh"
#include "whole_step/results.cuh"

// Words of a lane, of a warp's part of a row before the vocabulary: every 32nd.
constexpr int WARP_WORDS = segment_of(HIDDEN) / 2;
constexpr int NORM_WORDS = ceil_div(WARP_WORDS, WARP_SIZE);

// Mean and variance of a row, from its sums.
struct Spread {
  float mean, variance;

  __device__ __forceinline__ Spread(float sum, float squares) {
    mean = NORM == LAYER_NORM ? sum * (1.0f / HIDDEN) : 0.0f;
    variance = fmaxf(squares * (1.0f / HIDDEN) - mean * mean, 0.0f);
  }
};

// Scales and shifts of the elements that a lane normalises, of the last norm.
struct NormWeights {
  uint32 scale[NORM_WORDS], shift[NORM_WORDS];

  // Shifts may be null, for zeros.
  __device__ __forceinline__ void load(const Element* scales, const Element* shifts) {
    const Place place;
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      const int word = place.warp * WARP_WORDS + min(place.lane + w * WARP_SIZE, WARP_WORDS - 1);
      scale[w] = reinterpret_cast<const uint32*>(scales)[word];
      shift[w] = shifts == nullptr ? 0 : reinterpret_cast<const uint32*>(shifts)[word];
    }
  }
};

// The rows `[num_tokens, HIDDEN]` that are published, once they are there, normalised to shared memory, each warp
// its part, in the order of their elements. `keep(token, element, pair)` is called with every word of them.
template <typename Keep>
__device__ __forceinline__ void collect_normalised(Shared& shared, const Element* rows, const NormWeights& weights,
                                                   float epsilon, Keep keep) {
  const Place place;
  uint32 words[NUM_TOKENS][NORM_WORDS];
#pragma unroll
  for (int w = 0; w < NORM_WORDS; w++) {
    const int word = place.lane + w * WARP_SIZE;
    const int element = 2 * (place.warp * WARP_WORDS + min(word, WARP_WORDS - 1));
    uint32 one[NUM_TOKENS][1];
    await_words<NUM_TOKENS, 1>(one, rows + place_of(HIDDEN, element), HIDDEN);
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) words[t][w] = word < WARP_WORDS ? one[t][0] : 0;
  }
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    float sum = 0.0f, squares = 0.0f, x, y;
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      unpack_pair<Element>(words[t][w], x, y);
      sum += x + y, squares += x * x + y * y;
    }
    sum = warp_sum(sum), squares = warp_sum(squares);
    if (place.lane == 0) shared.moments[t][place.warp] = make_float2(sum, squares);
  }
  sync_warps();
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) sum += shared.moments[t][w].x, squares += shared.moments[t][w].y;
    const Spread spread(sum, squares);
    const float factor = rsqrtf(spread.variance + epsilon);
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      const int word = place.lane + w * WARP_SIZE;
      float x, y, scale_x, scale_y, shift_x, shift_y;
      unpack_pair<Element>(words[t][w], x, y);
      unpack_pair<Element>(weights.scale[w], scale_x, scale_y);
      unpack_pair<Element>(weights.shift[w], shift_x, shift_y);
      x = (x - spread.mean) * factor, y = (y - spread.mean) * factor;
      if (word < WARP_WORDS) {
        const uint32 pair = pack_pair<Element>(x * scale_x + shift_x, y * scale_y + shift_y);
        reinterpret_cast<uint32*>(shared.rows[place.warp])[t * ROW_STRIDE / 2 + word] = pair;
        keep(t, 2 * (place.warp * WARP_WORDS + word), pair);
      }
    }
  }
  __syncwarp();
}
