// The inputs of the products of persistent_decode.cu: a warp's part of every row, waited for, normalised in place.

#pragma once

#include "online_softmax.cuh"
#include "persistent_shapes.cuh"

// 32-bit words of a lane, where the warp shares a part of a row.
__host__ __device__ constexpr int words_of(int inner) {
  return segment_of(inner) <= 64 ? 1 : segment_of(inner) <= 128 ? 2 : 4;
}

// Which copy of what is published the thread block reads.
__device__ __forceinline__ int my_copy() { return blockIdx.x % COPIES; }

// The warp's part of `[num_tokens, INNER]`, once it is there, to the warp's part of shared memory.
template <int INNER>
__device__ __forceinline__ void collect(Shared& shared, const Element* rows) {
  constexpr int WORDS = words_of(INNER), WIDTH = WORDS * 2;
  static_assert(segment_of(INNER) % WIDTH == 0 && segment_of(INNER) <= 256, "lanes share a part evenly");
  const Place place;
  if (place.lane < segment_of(INNER) / WIDTH) {
    uint32 words[NUM_TOKENS][WORDS];
    const Element* from = rows + place.warp * segment_of(INNER) + place.lane * WIDTH;
    await_words<NUM_TOKENS, WORDS>(words, from, INNER);
    Element* to = shared.rows[place.warp] + place.lane * WIDTH;
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) {
#pragma unroll
      for (int w = 0; w < WORDS; w++) reinterpret_cast<uint32*>(to + t * ROW_STRIDE)[w] = words[t][w];
    }
  }
  __syncwarp();
}

// The vectors of the tokens and their positions, where the first layer starts.
struct Embeddings {
  const Element* token_vectors;     // [., HIDDEN]
  const Element* position_vectors;  // [., HIDDEN], or null
  const int* token_ids;             // [num_tokens]
  const int* positions;             // [num_tokens]
  int position_offset;

  __device__ __forceinline__ float at(int token, int dim) const {
    const float value = to_float(token_vectors[static_cast<int64>(token_ids[token]) * HIDDEN + dim]);
    if (position_vectors == nullptr) return value;
    const int64 position = max(positions[token], 0) + position_offset;
    return to_float(from_float<Element>(value + to_float(position_vectors[position * HIDDEN + dim])));
  }
};

__device__ __forceinline__ void collect_embeddings(Shared& shared, const Embeddings& embeddings) {
  const Place place;
#pragma unroll 1
  for (int i = place.lane; i < NUM_TOKENS * segment_of(HIDDEN); i += WARP_SIZE) {
    const int token = i / segment_of(HIDDEN), at = i % segment_of(HIDDEN);
    const float value = embeddings.at(token, place.warp * segment_of(HIDDEN) + at);
    shared.rows[place.warp][token * ROW_STRIDE + at] = from_float<Element>(value);
  }
  __syncwarp();
}

// The attention of all heads, the splits put together.
__device__ __forceinline__ void collect_attended(Shared& shared, const Published& published) {
#if SPLITS == 1
  collect<ATTENDED>(shared, published.attended(my_copy()));
#else
  const Place place;
  const int first = place.warp * segment_of(ATTENDED);
  for (int i = 2 * place.lane; i < NUM_TOKENS * segment_of(ATTENDED); i += 2 * WARP_SIZE) {
    const int token = i / segment_of(ATTENDED), at = i % segment_of(ATTENDED);
    const Element* from = published.attended(my_copy()) + token * SPLITS * ATTENDED + first + at;
    const float* lse = published.lse(my_copy()) + token * SPLITS * LSE_STRIDE + (first + at) / HEAD_SIZE;
    float weights[SPLITS], low = 0.0f, high = 0.0f, highest = NEGATIVE_INFINITY, all = 0.0f;
    uint32 words[SPLITS][1], states[SPLITS][1];
    await_words<SPLITS, 1>(words, from, ATTENDED);
    await_words<SPLITS, 1>(states, reinterpret_cast<const Element*>(lse), LSE_STRIDE * PAIR);
#pragma unroll
    for (int s = 0; s < SPLITS; s++) highest = fmaxf(highest, __uint_as_float(states[s][0]));
#pragma unroll
    for (int s = 0; s < SPLITS; s++) {
      weights[s] = exp2_below(__uint_as_float(states[s][0]), highest);
      all += weights[s];
    }
    const float inverse = all > 0.0f ? 1.0f / all : 0.0f;
#pragma unroll
    for (int s = 0; s < SPLITS; s++) {
      float x, y;
      unpack_pair<Element>(words[s][0], x, y);
      low += weights[s] * inverse * x;
      high += weights[s] * inverse * y;
    }
    *reinterpret_cast<uint32*>(shared.rows[place.warp] + token * ROW_STRIDE + at) = pack_pair<Element>(low, high);
  }
  __syncwarp();
#endif
}

constexpr int NORM_WORDS = words_of(HIDDEN);
constexpr int NORM_LANES = segment_of(HIDDEN) / (2 * NORM_WORDS);

// Scales and shifts of the elements that a lane normalises.
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

// The rows that the warps have collected are normalised in place. Two passes over all tokens with a barrier
// between.
__device__ __forceinline__ void normalise(Shared& shared, const NormWeights& weights, float epsilon) {
  const Place place;
  const bool active = place.lane < NORM_LANES;
  uint32* const words = reinterpret_cast<uint32*>(shared.rows[place.warp]) + place.lane * NORM_WORDS;
#pragma unroll 1
  for (int t = 0; t < NUM_TOKENS; t++) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      float x, y;
      unpack_pair<Element>(active ? words[t * ROW_STRIDE / 2 + w] : 0, x, y);
      sum += x + y;
      squares += x * x + y * y;
    }
    sum = warp_sum(sum), squares = warp_sum(squares);
    if (place.lane == 0) shared.moments[place.warp][t] = make_float2(sum, squares);
  }
  sync_warps();
#pragma unroll 1
  for (int t = 0; t < NUM_TOKENS; t++) {
    const float2 part = place.lane < NUM_WARPS ? shared.moments[place.lane][t] : make_float2(0.0f, 0.0f);
    const float mean = NORM == LAYER_NORM ? warp_sum(part.x) / HIDDEN : 0.0f;
    const float variance = fmaxf(warp_sum(part.y) / HIDDEN - mean * mean, 0.0f);
    const float factor = rsqrtf(variance + epsilon);
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) {
      float x, y, scale_x, scale_y, shift_x, shift_y;
      unpack_pair<Element>(active ? words[t * ROW_STRIDE / 2 + w] : 0, x, y);
      unpack_pair<Element>(weights.scale[w], scale_x, scale_y);
      unpack_pair<Element>(weights.shift[w], shift_x, shift_y);
      x = (x - mean) * factor, y = (y - mean) * factor;
#if NORM == 2  // RMSNorm rounds before it scales, as the models' own code does
      unpack_pair<Element>(pack_pair<Element>(x, y), x, y);
#endif
      if (active) words[t * ROW_STRIDE / 2 + w] = pack_pair<Element>(x * scale_x + shift_x, y * scale_y + shift_y);
    }
  }
  __syncwarp();
}
