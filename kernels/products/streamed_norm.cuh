// The input of a product whose weights stream, as the kernel before has written it, normalised on the way in if
// asked: LayerNorm (Ba et al. 2016, arXiv 1607.06450) or RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467).

#pragma once

#include "products/streamed_input.cuh"

#if NORM
// A lane has one piece of every token, that of step g, so that nothing is worked out twice. Then the pieces change
// places, to the lanes that multiply them. Statistics are merged as in Chan et al. 1979.
struct PieceNorm {
  const bool exists;  // whether there is such a step
  const int inner;    // where the piece begins
  uint4 scale, shift;

  // The norm's own numbers do not depend on the kernel before.
  __device__ __forceinline__ PieceNorm(const StreamPlace& place, const Element* weight, const Element* bias)
      : exists(place.g < STEPS), inner(place.first + place.offset(exists ? place.g : 0)) {
    scale = load_in_order(weight + inner);
    shift = NORM == LAYER_NORM && bias != nullptr ? load_in_order(bias + inner) : make_uint4(0, 0, 0, 0);
  }

  // Mean and sum of squared deviations of a warp's part; RMSNorm takes the mean for 0.
  __device__ __forceinline__ float2 moments(uint4 piece) const {
    float values[PIECE], sum = 0.0f, squares = 0.0f;
    unpack(piece, values);
#pragma unroll
    for (int i = 0; i < PIECE; i++) sum += values[i];
    const float mean = NORM == LAYER_NORM ? warp_sum(exists ? sum : 0.0f) / SEGMENT : 0.0f;
#pragma unroll
    for (int i = 0; i < PIECE; i++) squares += (values[i] - mean) * (values[i] - mean);
    return make_float2(mean, warp_sum(exists ? squares : 0.0f));
  }

  // `parts`: the token's moments of all warps, MAX_TOKENS apart.
  __device__ __forceinline__ uint4 apply(uint4 piece, const float2* parts, float epsilon) const {
    float mean = 0.0f, squares = 0.0f, values[PIECE], scales[PIECE], shifts[PIECE] = {};
    unpack(piece, values);
    unpack(scale, scales);
    if (NORM == LAYER_NORM) {
      unpack(shift, shifts);
#pragma unroll
      for (int w = 0; w < NUM_WARPS; w++) mean += parts[w * MAX_TOKENS].x / NUM_WARPS;
    }
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) {
      const float2 part = parts[w * MAX_TOKENS];
      squares += part.y;
      if (NORM == LAYER_NORM) squares += SEGMENT * (part.x - mean) * (part.x - mean);
    }
    const float factor = rsqrtf(squares / IN_FEATURES + epsilon);
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
      const float centred = (values[i] - mean) * factor;
      // RMSNorm rounds before it scales, as the models' own code does.
      values[i] =
          NORM == RMS_NORM ? to_float(from_float<Element>(centred)) * scales[i] : centred * scales[i] + shifts[i];
    }
    return pack(values);
  }
};

__device__ __forceinline__ void take_normed(StreamInput& input, StreamShared& shared, const StreamPlace& place,
                                            const Element* rows, const PieceNorm& norm, int num_tokens,
                                            float epsilon) {
  uint4 pieces[MAX_TOKENS];
#pragma unroll
  for (int t = 0; t < MAX_TOKENS; t++) pieces[t] = input_piece(rows, t, num_tokens, norm.inner);
#pragma unroll
  for (int t = 0; t < MAX_TOKENS; t++) {
    if (t >= num_tokens) break;
    const float2 moments = norm.moments(pieces[t]);
    if (place.lane == 0) shared.moments[place.warp][t] = moments;
  }
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) input.pieces[t][s] = make_uint4(0, 0, 0, 0);
  }
  place.sync_warps();
  uint4* exchange = shared.exchange[place.warp];
#pragma unroll
  for (int t = 0; t < MAX_TOKENS; t++) {
    if (t >= num_tokens) break;
    exchange[place.lane] = norm.apply(pieces[t], &shared.moments[0][t], epsilon);
    __syncwarp();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      if (place.g == t % 8) input.pieces[t / 8][s] = exchange[4 * s + place.q];
    }
    __syncwarp();
  }
}
#endif

// Rows [num_tokens, IN_FEATURES] that the kernel before has written, normalised if asked, as the product's input.
__device__ __forceinline__ void take_input(StreamInput& input, StreamShared& shared, const StreamPlace& place,
                                           const Element* rows, const Element* norm_weight,
                                           const Element* norm_bias, int num_tokens, float epsilon) {
#if NORM
  const PieceNorm norm(place, norm_weight, norm_bias);
  wait_for_previous_kernel();
  take_normed(input, shared, place, rows, norm, num_tokens, epsilon);
#else
  wait_for_previous_kernel();
  input.load(place, rows, num_tokens);
#endif
}
