// The input of a product whose weights stream, as the kernel before has written it, normalised on the way in if
// asked: LayerNorm (Ba et al. 2016, arXiv 1607.06450) or RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467).

#pragma once

#include "products/streamed_input.cuh"

constexpr int FEW_TOKENS = IN_SHARED ? SHARED_TOKENS : 2;  // whose norms all lanes of a warp share
constexpr int LANE_PIECES = ceil_div(STEPS, 8);            // of a token then

#if NORM

// Mean and sum of squared deviations of a warp's part of a token. Parts are merged as in Chan et al. 1979; RMSNorm
// takes the mean for 0.
struct Moments {
  float mean = 0.0f, squares = 0.0f;

  // Of `elements` elements, of which a lane has those of `pieces` that `exists` says and zeros in the others; the
  // part is that of all lanes that differ in the bits up to FROM.
  template <int FROM, int COUNT, typename Exists>
  __device__ __forceinline__ void take(const uint4 (&pieces)[COUNT], int elements, Exists exists) {
    float values[PIECE], sum = 0.0f;
    if (NORM == LAYER_NORM) {
#pragma unroll
      for (int s = 0; s < COUNT; s++) {
        unpack(pieces[s], values);
#pragma unroll
        for (int i = 0; i < PIECE; i++) sum += values[i];
      }
      mean = elements > 0 ? warp_sum<FROM>(sum) / elements : 0.0f;
    }
#pragma unroll
    for (int s = 0; s < COUNT; s++) {
      if (NORM == LAYER_NORM && !exists(s)) continue;
      unpack(pieces[s], values);
#pragma unroll
      for (int i = 0; i < PIECE; i++) squares += (values[i] - mean) * (values[i] - mean);
    }
    squares = warp_sum<FROM>(squares);
  }
};

// Elements of a row that are a warp's.
__device__ __forceinline__ int elements_of(int warp) {
  const int last = min(max(LAST_FEATURES - warp * STAGE_SEGMENT, 0), STAGE_SEGMENT);
  return (ROW_STAGES - 1) * STAGE_SEGMENT + last;
}

// What a token's elements are changed by.
struct TokenNorm {
  float mean = 0.0f, factor;

  // `parts`: the token's moments of all warps, MAX_TOKENS apart.
  __device__ __forceinline__ TokenNorm(const float2* parts, float epsilon) {
    float squares = 0.0f;
    if (NORM == LAYER_NORM) {
#pragma unroll
      for (int w = 0; w < NUM_WARPS; w++) mean += parts[w * MAX_TOKENS].x * elements_of(w) / IN_FEATURES;
    }
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) {
      const float2 part = parts[w * MAX_TOKENS];
      squares += part.y;
      if (NORM == LAYER_NORM) squares += elements_of(w) * (part.x - mean) * (part.x - mean);
    }
    factor = rsqrtf(squares / IN_FEATURES + epsilon);
  }

  __device__ __forceinline__ uint4 apply(uint4 piece, const StreamShared& shared, bool shifted, int inner) const {
    float values[PIECE], scales[PIECE], shifts[PIECE] = {};
    unpack(piece, values);
    const uint4 scale = load_16(shared.scales + inner);
    if (NORM == RMS_NORM) {
      // Rounds before it scales, as the models' own code does.
#pragma unroll
      for (int i = 0; i < PIECE; i++) values[i] *= factor;
      const uint4 centred = pack(values);
      return make_uint4(multiply_pairs<Element>(centred.x, scale.x), multiply_pairs<Element>(centred.y, scale.y),
                        multiply_pairs<Element>(centred.z, scale.z), multiply_pairs<Element>(centred.w, scale.w));
    }
    unpack(scale, scales);
    if (shifted) unpack(load_16(shared.shifts + inner), shifts);
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
      values[i] = scaled_by_norm<NORM>((values[i] - mean) * factor, scales[i], shifts[i]);
    }
    return pack(values);
  }
};
#endif

#if NORM || SHARED_TOKENS
// Pieces of few tokens, shared out among all lanes of a warp: which of them a lane has.
struct LanePieces {
  uint4 pieces[FEW_TOKENS][LANE_PIECES];
  const StreamPlace& place;

  __device__ __forceinline__ LanePieces(const StreamPlace& where, const Element* rows, int num_tokens)
      : place(where) {
#pragma unroll
    for (int t = 0; t < FEW_TOKENS; t++) {
#pragma unroll
      for (int j = 0; j < LANE_PIECES; j++) {
        pieces[t][j] = exists(j) ? input_piece(rows, t, num_tokens, inner_of(j)) : make_uint4(0, 0, 0, 0);
      }
    }
  }
  __device__ __forceinline__ int step_of(int j) const { return 8 * j + place.g; }
  __device__ __forceinline__ int inner_of(int j) const { return place.first + place.offset(step_of(j)); }
  __device__ __forceinline__ bool exists(int j) const {
    return step_of(j) < STEPS && (SHARES_OUT || inner_of(j) < IN_FEATURES);
  }
#if NORM
  __device__ __forceinline__ void share_moments(StreamShared& shared) const {
#pragma unroll
    for (int t = 0; t < FEW_TOKENS; t++) {
      Moments moments;
      moments.take<WARP_SIZE / 2>(pieces[t], elements_of(place.warp), [&](int j) { return exists(j); });
      if (place.lane == 0) shared.moments[place.warp][t] = make_float2(moments.mean, moments.squares);
    }
  }
#endif
};
#endif

#if SHARED_TOKENS
// Each piece once, normed, into shared memory.
__device__ __forceinline__ void take_shared(StreamInput& input, StreamShared& shared, const StreamPlace& place,
                                            const Element* rows, bool shifted, int num_tokens, float epsilon) {
  LanePieces own(place, rows, num_tokens);
#if NORM
  own.share_moments(shared);
  wait(shared_address(&shared.norm_filled), 0);
  place.sync_warps();
#endif
#pragma unroll
  for (int t = 0; t < SHARED_TOKENS; t++) {
#if NORM
    const TokenNorm norm(&shared.moments[0][t], epsilon);
#endif
#pragma unroll
    for (int j = 0; j < LANE_PIECES; j++) {
      if (own.step_of(j) >= STEPS) continue;
      uint4 piece = own.pieces[t][j];
#if NORM
      if (own.exists(j)) piece = norm.apply(piece, shared, shifted, own.inner_of(j));
#endif
      shared.tokens[t][(place.warp * STEPS + own.step_of(j)) * 4 + place.q] = in_order_of_weights(piece);
    }
  }
  __syncwarp();
  input.load(shared, place);
}
#elif NORM
// A token or two: each lane has pieces of every token, so that nothing is worked out twice. Then they change
// places, to the lanes that multiply them.
__device__ __forceinline__ void take_few_normed(StreamInput& input, StreamShared& shared, const StreamPlace& place,
                                                const Element* rows, bool shifted, int num_tokens, float epsilon) {
  LanePieces own(place, rows, num_tokens);
  own.share_moments(shared);
#pragma unroll
  for (int s = 0; s < STEPS; s++) input.pieces[s] = make_uint4(0, 0, 0, 0);
  wait(shared_address(&shared.norm_filled), 0);
  place.sync_warps();
  uint4* exchange = shared.exchange[place.warp];
#pragma unroll
  for (int t = 0; t < FEW_TOKENS; t++) {
    if (t >= num_tokens) break;
    const TokenNorm norm(&shared.moments[0][t], epsilon);
#pragma unroll
    for (int j = 0; j < LANE_PIECES; j++) {
      if (own.exists(j)) {
        exchange[place.lane] = norm.apply(own.pieces[t][j], shared, shifted, own.inner_of(j));
      }
      __syncwarp();
#pragma unroll
      for (int s = 8 * j; s < STEPS && s < 8 * j + 8; s++) {
        const bool there = SHARES_OUT || place.first + place.offset(s) < IN_FEATURES;
        if (place.g == t && there) input.pieces[s] = exchange[4 * (s - 8 * j) + place.q];
      }
      __syncwarp();
    }
  }
}

// More of them: each lane has those pieces of one token that it multiplies.
__device__ __forceinline__ void take_many_normed(StreamInput& input, StreamShared& shared, const StreamPlace& place,
                                                 const Element* rows, bool shifted, int num_tokens, float epsilon) {
  input.load(place, rows, num_tokens);
  const auto inner_of = [&](int s) { return place.first + place.offset(s); };
  const auto exists = [&](int s) { return SHARES_OUT || inner_of(s) < IN_FEATURES; };
  Moments moments;
  moments.take<2>(input.pieces, elements_of(place.warp), exists);
  if (place.q == 0) shared.moments[place.warp][place.g] = make_float2(moments.mean, moments.squares);
  wait(shared_address(&shared.norm_filled), 0);
  place.sync_warps();
  if (place.g >= num_tokens) return;
  const TokenNorm norm(&shared.moments[0][place.g], epsilon);
#pragma unroll
  for (int s = 0; s < STEPS; s++) {
    if (exists(s)) input.pieces[s] = norm.apply(input.pieces[s], shared, shifted, inner_of(s));
  }
}
#endif

// Rows [num_tokens, IN_FEATURES] that the kernel before has written, normalised if asked, as the product's input.
__device__ __forceinline__ void take_input(StreamInput& input, StreamShared& shared, const StreamPlace& place,
                                           const Element* rows, bool shifted, int num_tokens, float epsilon) {
  await_input();
#if SHARED_TOKENS
  take_shared(input, shared, place, rows, shifted, num_tokens, epsilon);
#else
#if NORM
  if (num_tokens <= FEW_TOKENS) {
    take_few_normed(input, shared, place, rows, shifted, num_tokens, epsilon);
  } else {
    take_many_normed(input, shared, place, rows, shifted, num_tokens, epsilon);
  }
#else
  input.load(place, rows, num_tokens);
#endif
  input.prepare();
#endif
}
