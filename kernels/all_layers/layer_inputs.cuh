// The inputs of the products of streamed_layers.cu: a warp's part of every token, waited for by the lanes that
// multiply by it, or normalised on its way to them.

#pragma once

#include "all_layers/layer_memory.cuh"
#include "common/online_softmax.cuh"

__device__ __forceinline__ uint32 look_at(uint4& piece, const Element* place) {
  uint32 words[4];
  look<4>(words, place);
  piece = make_uint4(words[0], words[1], words[2], words[3]);
  return max(max(words[0], words[1]), max(words[2], words[3]));
}

// The warp's part of a row of INNER elements, which lane g has one of, once all are there. The first step is looked
// at until it is there, and then all: a look at many takes longer.
template <int INNER>
__device__ __forceinline__ void collect(uint4 (&pieces)[steps_of(INNER)], const Element* row) {
  const Element* const from = row + inner_of(Place(), 0);
  int num_looks = 0;
  if (steps_of(INNER) > 4) {
#pragma unroll 1
    while (__any_sync(FULL_WARP, look_at(pieces[0], from) == NOT_THERE)) {
      if (++num_looks == MAX_LOOKS) __trap();  // a thread block is missing: an error, not a GPU that never answers
    }
  }
#pragma unroll 1
  for (;; num_looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < steps_of(INNER); i++) {
      const int offset = i / STAGE_STEPS * STAGE_FEATURES + i % STAGE_STEPS * NUM_WARPS * STEP;
      highest = max(highest, look_at(pieces[i], from + offset));
    }
    if (!__any_sync(FULL_WARP, highest == NOT_THERE)) return;
    if (num_looks >= MAX_LOOKS) __trap();
  }
}

#if SPLITS > 1
// The splits of a token's attention put together: lane g has split g / TOKENS of token g % TOKENS, which is `row`.
__device__ __forceinline__ void merge_splits(uint4 (&pieces)[steps_of(ATTENDED)], const Published& published,
                                             int row) {
  // Lanes beyond those have the same once more, which no other lane hears of.
  constexpr int STEPS = steps_of(ATTENDED), FROM = 2 * TOKENS * SPLITS,
                TO = 4 * TOKENS;  // lanes of a token's splits
  const Place place;
  const uint32* lse = published.lse(blockIdx.x % COPIES, row);
  uint32 states[STEPS];
#pragma unroll 1
  for (int looks = 0;; looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      uint32 word[1] = {};
      look<1>(word, lse + min(inner_of(place, i), ATTENDED - 1) / HEAD_SIZE);
      states[i] = word[0];
      highest = max(highest, word[0]);
    }
    if (!__any_sync(FULL_WARP, highest == NOT_THERE)) break;
    if (looks == MAX_LOOKS) __trap();
  }
#pragma unroll
  for (int i = 0; i < STEPS; i++) {
    const float state = __uint_as_float(states[i]), highest = warp_max<FROM, TO>(state);
    const float weight = exp2_below(state, highest);
    const float all = warp_sum<FROM, TO>(weight);
    const float factor = all > 0.0f ? weight / all : 0.0f;
    float values[PIECE];
    unpack(pieces[i], values);
#pragma unroll
    for (int v = 0; v < PIECE; v++) values[v] = warp_sum<FROM, TO>(factor > 0.0f ? values[v] * factor : 0.0f);
    pieces[i] = pack(values);
  }
}
#endif

// Rows of the residual stream behind a norm. All lanes share the work: lane g has every SUB_LANES-th step of token
// g % TOKENS, and hands what comes out to the lane that multiplies it.
constexpr int NORM_STEPS = steps_of(HIDDEN);
constexpr int NORM_LOADS = ceil_div(NORM_STEPS, SUB_LANES);  // of a lane

struct NormScales {
  uint4 of[NORM_LOADS];

  // Asked for before the rows are there.
  __device__ __forceinline__ void load(const Element* weight) {
    const Place place;
#pragma unroll
    for (int j = 0; j < NORM_LOADS; j++) {
      const int i = j * SUB_LANES + place.g / TOKENS;
      of[j] = load_16(weight + min(inner_of(place, i), HIDDEN - PIECE));
    }
  }
};

// Has a barrier among all warps that multiply in it.
__device__ __forceinline__ void collect_normed(uint4 (&pieces)[NORM_STEPS], Shared& shared, const Element* rows,
                                               bool awaited, const NormScales& scales, float epsilon) {
  const Place place;
  const int token = place.g % TOKENS, sub = place.g / TOKENS;
  const auto step_of = [&](int j) { return j * SUB_LANES + sub; };
  uint4 own[NORM_LOADS];
#pragma unroll 1
  for (int looks = 0;; looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int j = 0; j < NORM_LOADS; j++) {
      const int inner = inner_of(place, step_of(j));
      highest = max(highest, look_at(own[j], rows + token * HIDDEN + min(inner, HIDDEN - PIECE)));
      if (inner >= HIDDEN) own[j] = make_uint4(0, 0, 0, 0);
    }
    if (!__any_sync(FULL_WARP, awaited && highest == NOT_THERE)) break;
    if (looks == MAX_LOOKS) __trap();
  }
  float sum = 0.0f, values[PIECE], factors[PIECE];
#pragma unroll
  for (int j = 0; j < NORM_LOADS; j++) {
    unpack(own[j], values);
#pragma unroll
    for (int v = 0; v < PIECE; v++) sum += values[v] * values[v];
  }
  sum = warp_sum<2, 1>(sum);
  if (TOKENS < 8) sum = warp_sum<16, 4 * TOKENS>(sum);
  if (place.q == 0 && sub == 0) shared.squares[place.warp][token] = sum;
  sync_warps();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) total += shared.squares[w][token];
  const float factor = rsqrtf(total / HIDDEN + epsilon);
#pragma unroll
  for (int j = 0; j < NORM_LOADS; j++) {
    unpack(own[j], values);
    unpack(scales.of[j], factors);
#pragma unroll
    for (int v = 0; v < PIECE; v++) values[v] = scaled_by_norm<NORM>(values[v] * factor, factors[v], 0.0f);
    own[j] = pack(values);
  }
  if (TOKENS == 8) {
#pragma unroll
    for (int i = 0; i < NORM_STEPS; i++) pieces[i] = own[i];
    return;
  }
  uint4* const exchange = shared.exchange[place.warp];
#pragma unroll
  for (int j = 0; j < NORM_LOADS; j++) {
    exchange[place.lane] = own[j];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < SUB_LANES && j * SUB_LANES + k < NORM_STEPS; k++) {
      pieces[j * SUB_LANES + k] = exchange[(token + k * TOKENS) * 4 + place.q];
    }
    __syncwarp();
  }
}
