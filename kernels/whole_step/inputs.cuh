// The inputs of the products of persistent_decode.cu: a warp's part of every row, waited for by the lanes that
// multiply by it. Nothing goes through shared memory on its way.

#pragma once

#include "common/online_softmax.cuh"
#include "whole_step/memory.cuh"

// Which copy of what is published the thread block reads.
__device__ __forceinline__ int my_copy() { return blockIdx.x % COPIES; }

// Even or odd words of a piece.
__device__ __forceinline__ void choose_words(uint32 (&words)[2], uint4 piece, bool odd) {
  words[0] = odd ? piece.y : piece.x, words[1] = odd ? piece.w : piece.z;
}

// Which token's words the lane has, and which of them. Lanes beyond the columns have words that somebody else has
// too.
__device__ __forceinline__ int words_token(const Place& place) { return place.g / 2 % NUM_TOKENS; }
__device__ __forceinline__ bool has_odd_words(const Place& place) { return place.g % 2; }

// One look at the lane's words of `ROWS` rows of steps, `stride` elements apart. `first`: where the warp's part of
// the first row begins.
template <int ROWS, int STEPS>
__device__ __forceinline__ void look_at_steps(uint32 (&words)[ROWS][STEPS][2], const Element* first, int stride,
                                              int column) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int s = 0; s + 1 < STEPS; s += 2) {
      uint32 four[4];
      look<4>(four, first + r * stride + s * STEP + column * 8);
      words[r][s][0] = four[0], words[r][s][1] = four[1], words[r][s + 1][0] = four[2],
      words[r][s + 1][1] = four[3];
    }
    if constexpr (STEPS % 2) look<2>(words[r][STEPS - 1], first + r * stride + (STEPS - 1) * STEP + column * 4);
  }
}

// Whether those of all lanes are there.
template <int ROWS, int STEPS>
__device__ __forceinline__ bool are_there(const uint32 (&words)[ROWS][STEPS][2]) {
  uint32 highest = 0;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) highest = max(highest, highest_of(words[r][s]));
  }
  return !__any_sync(FULL_WARP, highest == NOT_THERE);
}

// The words, once all of the warp's are there, as `await_words`. Of many steps the first two are looked at until
// they are there, and then all: a look at all of them takes three times as long.
template <int ROWS, int STEPS>
__device__ __forceinline__ void await_steps(uint32 (&words)[ROWS][STEPS][2], const Element* first, int stride) {
  const Place place;
  const int column = place.q * 2 + place.g % 2;
  if constexpr (STEPS > 2) {
    uint32 two[ROWS][2][2];
    await_steps(two, first, stride);
  }
  // NOTE: not `look_until_there`, which makes other code of it: seven more registers.
#pragma unroll 1
  for (int looks = 0; looks < MAX_LOOKS; looks++) {
    look_at_steps(words, first, stride, column);
    if (are_there(words)) return;
  }
  __trap();
}

// The warp's part of rows `[num_tokens, INNER]`, which lie as `place_of` says.
template <int INNER>
__device__ __forceinline__ void collect(uint32 (&words)[steps_of(INNER)][2], const Element* rows) {
  const Place place;
  uint32 row[1][steps_of(INNER)][2];
  await_steps(row, rows + words_token(place) * INNER + place.warp * segment_of(INNER), 0);
#pragma unroll
  for (int s = 0; s < steps_of(INNER); s++) words[s][0] = row[0][s][0], words[s][1] = row[0][s][1];
}

#if SPLITS > 1
// Two words of all splits put together, by log2 of their sums of weights.
__device__ __forceinline__ void merge_words(uint32 (&words)[2], const uint32 (&of)[SPLITS][2],
                                            const uint32 (&states)[SPLITS]) {
  float highest = NEGATIVE_INFINITY, all = 0.0f, sums[4] = {};
#pragma unroll
  for (int s = 0; s < SPLITS; s++) highest = fmaxf(highest, __uint_as_float(states[s]));
#pragma unroll
  for (int s = 0; s < SPLITS; s++) {
    const float weight = exp2_below(__uint_as_float(states[s]), highest);
    all += weight;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float low, high;
      unpack_pair<Element>(of[s][i], low, high);
      sums[2 * i] += weight * low, sums[2 * i + 1] += weight * high;
    }
  }
  const float inverse = all > 0.0f ? 1.0f / all : 0.0f;
#pragma unroll
  for (int i = 0; i < 2; i++) words[i] = pack_pair<Element>(sums[2 * i] * inverse, sums[2 * i + 1] * inverse);
}
#endif

// The attention of all heads, the splits put together.
__device__ __forceinline__ void collect_attended(uint32 (&words)[steps_of(ATTENDED)][2],
                                                 const Published& published) {
#if SPLITS == 1
  collect<ATTENDED>(words, published.attended(my_copy()));
#else
  constexpr int STEPS = steps_of(ATTENDED);
  const Place place;
  const int part = words_token(place) * SPLITS, first = place.warp * segment_of(ATTENDED);
  uint32 rows[SPLITS][STEPS][2], states[STEPS][SPLITS][1];
  await_steps(rows, published.attended(my_copy()) + part * ATTENDED + first, ATTENDED);
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    const float* lse = published.lse(my_copy()) + part * LSE_STRIDE + (first + s * STEP) / HEAD_SIZE;
    await_words<SPLITS, 1>(states[s], reinterpret_cast<const Element*>(lse), LSE_STRIDE * PAIR);
  }
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    uint32 of[SPLITS][2], of_states[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++)
      of[i][0] = rows[i][s][0], of[i][1] = rows[i][s][1], of_states[i] = states[s][i][0];
    merge_words(words[s], of, of_states);
  }
#endif
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

  // Eight dimensions of a token, from `dim` on.
  __device__ __forceinline__ uint4 piece(int token, int dim) const {
    const Element *vector = token_vectors[0], *position_vector = position_vectors[0];
#pragma unroll
    for (int t = 1; t < NUM_TOKENS; t++) {
      if (t == token) vector = token_vectors[t], position_vector = position_vectors[t];
    }
    const uint4 piece = load_16(vector + dim);
    if (position_vector == nullptr) return piece;
    float values[PIECE], others[PIECE];
    unpack(piece, values);
    unpack(load_16(position_vector + dim), others);
#pragma unroll
    for (int i = 0; i < PIECE; i++) values[i] += others[i];
    return pack(values);
  }

  // One of them.
  __device__ __forceinline__ float value(int token, int dim) const {
    const uint4 all = piece(token, dim / PIECE * PIECE);
    const int at = dim % PIECE / 2;
    float low, high;
    unpack_pair<Element>(at < 2 ? (at == 0 ? all.x : all.y) : (at == 2 ? all.z : all.w), low, high);
    return dim % 2 ? high : low;
  }
};

// The embeddings, as `collect` collects other rows.
__device__ __forceinline__ void collect_embeddings(uint32 (&words)[NORM_STEPS][2], const Embeddings& embeddings) {
  const Place place;
#pragma unroll
  for (int s = 0; s < NORM_STEPS; s++) {
    const int dim = place.warp * segment_of(HIDDEN) + s * STEP + place.q * PIECE;
    choose_words(words[s], embeddings.piece(words_token(place), dim), has_odd_words(place));
  }
}
