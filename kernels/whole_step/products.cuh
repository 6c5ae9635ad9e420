// The products of persistent_decode.cu, from weights in shared memory and collected inputs to what is published.

#pragma once

#include "whole_step/norm.cuh"

// What a lane needs of a slot, in registers before its input is there.
template <int UNITS>
struct Into {
  uint4 weights[UNITS][NORM_STEPS];
  uint32 scale[NORM_STEPS][2];     // of the lane's column: ones where the row stays as it is
  RowConstants constants[PAIRED];  // of the lane's result

  // `result_row`: that of the lane's result.
  __device__ __forceinline__ void load(const IntoSlot<UNITS>& slot, int result_row) {
    const Place place;
    const int first = place.warp * segment_of(HIDDEN) + place.q * PIECE;
#pragma unroll
    for (int s = 0; s < NORM_STEPS; s++) {
#pragma unroll
      for (int u = 0; u < UNITS; u++) weights[u][s] = load_16(slot.rows[u * UNIT + place.g] + first + s * STEP);
      scale[s][0] = scale[s][1] = pack_pair<Element>(1.0f, 1.0f);
      if (place.g >= COLUMNS) continue;
#pragma unroll
      for (int i = 0; i < 2; i++)
        scale[s][i] = *reinterpret_cast<const uint32*>(slot.scale + first + s * STEP + i * 4 + place.g % 2 * 2);
    }
#pragma unroll
    for (int i = 0; i < PAIRED; i++)  // some lanes have no rows, and queries no gates
      constants[i] = slot.constants[min(result_row + i * UNIT, UNITS * UNIT - 1)];
  }
};

template <int INNER>
struct Back {
  uint4 weights[steps_of(INNER)];
  float bias;  // of the lane's result

  __device__ __forceinline__ void load(const BackSlot<INNER>& slot, int result_row) {
    const Place place;
    const Element* from = slot.rows[place.g] + place.warp * segment_of(INNER) + place.q * PIECE;
#pragma unroll
    for (int s = 0; s < steps_of(INNER); s++) weights[s] = load_16(from + s * STEP);
    bias = to_float(slot.bias[result_row]);
  }
};

// The product of the scaled row. In the same go its moments: where the row stays as it is, a column is also a row
// of the first operand, above a row of ones. Ends in a barrier.
template <int UNITS>
__device__ __forceinline__ void multiply(Shared& shared, const Into<UNITS>& into,
                                         const uint32 (&words)[NORM_STEPS][2], int half) {
  constexpr int AT_A_TIME = 3;  // units: chains of products that do not wait for each other, and registers for them
  const uint32 one = pack_pair<Element>(1.0f, 1.0f);
  const Place place;
  uint32 inputs[NORM_STEPS][2];
  float moments[4] = {};
#pragma unroll
  for (int s = 0; s < NORM_STEPS; s++) {
#pragma unroll
    for (int i = 0; i < 2; i++) inputs[s][i] = multiply_pairs<Element>(words[s][i], into.scale[s][i]);
    const auto& columns = MOMENTS_APART ? words : inputs;
    multiply_unit(moments, make_uint4(words[s][0], one, words[s][1], one), columns[s]);
  }
#pragma unroll
  for (int first = 0; first < UNITS; first += AT_A_TIME) {
    float sums[AT_A_TIME][4] = {};
#pragma unroll
    for (int i = 0; i < NORM_STEPS * AT_A_TIME; i++) {
      const int s = i / AT_A_TIME, u = i % AT_A_TIME;
      if (first + u < UNITS) multiply_unit(sums[u], into.weights[first + u][s], inputs[s]);
    }
#pragma unroll
    for (int u = 0; u < AT_A_TIME; u++) {
      if (first + u < UNITS) share_sums(shared.sums[half], sums[u], place, first + u);
    }
  }
  // Both columns of a token: each times itself, and both times ones.
  if (place.g / 2 == place.q && place.q >= FIRST_MOMENT && place.q < FIRST_MOMENT + NUM_TOKENS) {
    auto& to = shared.sums[half][place.q - FIRST_MOMENT];
    to[SQUARES + place.g % 2][place.warp] = place.g % 2 ? moments[1] : moments[0];
    if (place.g % 2 == 0) to[SUM][place.warp] = moments[2] + moments[3];
  }
  sync_warps();
}

// The sums of `multiply` with the norm, and what follows it, published.
template <int UNITS, typename AResult>
__device__ __forceinline__ void publish_into(const Shared& shared, const AResult& result, const Into<UNITS>& into,
                                             int half, float epsilon, int64 to_other) {
  if (!result.takes_part) return;
  const auto& sums = shared.sums[half][result.token];
  const Spread spread(total(sums[SUM]), total(sums[SQUARES]) + total(sums[SQUARES + 1]));
  const float factor = rsqrtf(spread.variance + epsilon);
  float values[PAIRED];
#pragma unroll
  for (int i = 0; i < PAIRED; i++) {
    if (i > 0 && half == 0) continue;
    const RowConstants& of_row = into.constants[i];
    values[i] = (total(sums[min(result.row + i * UNIT, RESULT_ROWS - 1)]) - spread.mean * of_row.scales) * factor +
                of_row.base;
  }
  if (half == 1) {
#if GATED
    const float gate = to_float(from_float<Element>(values[0]));
    values[0] = gate / (1.0f + __expf(-gate)) * to_float(from_float<Element>(values[1]));
#else
    values[0] = fmaxf(values[0], 0.0f);
#endif
  }
  result.publish(values[0], to_other);
}

// The product of a row without a norm. Ends in a barrier.
template <int INNER>
__device__ __forceinline__ void multiply_back(Shared& shared, const Back<INNER>& back,
                                              const uint32 (&words)[steps_of(INNER)][2]) {
  constexpr int CHAINS = smaller(steps_of(INNER), 4);  // of products that do not wait for each other
  const Place place;
  float sums[CHAINS][4] = {};
#pragma unroll
  for (int s = 0; s < steps_of(INNER); s++) multiply_unit(sums[s % CHAINS], back.weights[s], words[s]);
#pragma unroll
  for (int c = 1; c < CHAINS; c++) sums[0][0] += sums[c][0], sums[0][3] += sums[c][3];
  share_sums(shared.sums[2], sums[0], place, 0);
  sync_warps();
}

// Its sums, added and published. `carried` is the residual stream at the lane's result.
__device__ __forceinline__ void publish_back(const Shared& shared, const StreamResult& result, float bias,
                                             float& carried, int64 to_other) {
  if (!result.takes_part) return;
  const float value = total(shared.sums[2][result.token][result.row]) + bias;
  carried = to_float(from_float<Element>(to_float(from_float<Element>(value)) + carried));
  result.publish(carried, to_other);
}
