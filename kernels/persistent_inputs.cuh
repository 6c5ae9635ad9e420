// The inputs of the products of persistent_decode.cu: a warp's part of every row, waited for, normalised in place.

#pragma once

#include "online_softmax.cuh"
#include "persistent_memory.cuh"

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

// The vectors of the tokens and their positions, where the first layer starts. They are asked for all at once: one
// after another they would take as long as half a layer.
struct Embeddings {
  const Element* token_vectors[NUM_TOKENS];     // [HIDDEN] of each token
  const Element* position_vectors[NUM_TOKENS];  // likewise, or null

  // token_vectors: [., HIDDEN]; position_vectors: likewise, or null; token_ids, positions: [num_tokens].
  __device__ __forceinline__ Embeddings(const Element* all_tokens, const Element* all_positions,
                                        const int* token_ids, const int* positions, int position_offset) {
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) {
      const int64 id = token_ids[t], position = max(positions[t], 0) + position_offset;
      token_vectors[t] = all_tokens + id * HIDDEN;
      position_vectors[t] = all_positions == nullptr ? nullptr : all_positions + position * HIDDEN;
    }
  }

  __device__ __forceinline__ float at(int token, int dim) const {
    float value = 0.0f;
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) {
      if (t != token) continue;
      value = to_float(token_vectors[t][dim]);
      if (position_vectors[t] == nullptr) continue;
      value = to_float(from_float<Element>(value + to_float(position_vectors[t][dim])));
    }
    return value;
  }
};

// The warp's part of the embeddings, as `collect` leaves a part of other rows.
__device__ __forceinline__ void collect_embeddings(Shared& shared, const Embeddings& embeddings) {
  constexpr int WORDS = words_of(HIDDEN), WIDTH = WORDS * 2;
  const Place place;
  if (place.lane < segment_of(HIDDEN) / WIDTH) {
    const int first = place.warp * segment_of(HIDDEN) + place.lane * WIDTH;
    Element* to = shared.rows[place.warp] + place.lane * WIDTH;
    float values[NUM_TOKENS][WIDTH];
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[t][i] = embeddings.at(t, first + i);
    }
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) to[t * ROW_STRIDE + i] = from_float<Element>(values[t][i]);
    }
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
