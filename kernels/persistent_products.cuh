// The products of persistent_decode.cu, from weights in shared memory and collected inputs to what is published.

#pragma once

#include "persistent_norm.cuh"

// What a lane needs of a slot, in registers before its input is there.
struct Into {
  uint4 weights[UNITS][NORM_STEPS];
  uint32 scale[NORM_STEPS][2];        // of the lane's column: ones where the row stays as it is
  RowConstants constants[PAIRED][2];  // of the thread's results

  __device__ __forceinline__ void load(const IntoSlot& slot, const Result& result) {
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
    for (int i = 0; i < 2 * PAIRED; i++)  // some threads have no rows, and queries no gates
      constants[i / 2][i % 2] = slot.constants[min(result.row + i / 2 * UNIT + i % 2, RESULT_ROWS - 1)];
  }
};

template <int INNER>
struct Back {
  uint4 weights[steps_of(INNER)];
  uint32 bias;  // of the thread's results

  __device__ __forceinline__ void load(const BackSlot<INNER>& slot, const Result& result) {
    const Place place;
    const Element* from = slot.rows[place.g] + place.warp * segment_of(INNER) + place.q * PIECE;
#pragma unroll
    for (int s = 0; s < steps_of(INNER); s++) weights[s] = load_16(from + s * STEP);
    bias = *reinterpret_cast<const uint32*>(slot.bias + result.row);
  }
};

// The product of the scaled row. In the same go its moments: where the row stays as it is, a column is also a row
// of the first operand, above a row of ones. Ends in a barrier.
__device__ __forceinline__ void multiply(Shared& shared, const Into& into, const uint32 (&words)[NORM_STEPS][2],
                                         int half) {
  const uint32 one = pack_pair<Element>(1.0f, 1.0f);
  const Place place;
  float sums[UNITS][4] = {}, moments[4] = {};
#pragma unroll
  for (int s = 0; s < NORM_STEPS; s++) {
    const uint32 input[2] = {multiply_pairs<Element>(words[s][0], into.scale[s][0]),
                             multiply_pairs<Element>(words[s][1], into.scale[s][1])};
#pragma unroll
    for (int u = 0; u < UNITS; u++) multiply_unit(sums[u], into.weights[u][s], input);
    multiply_unit(moments, make_uint4(words[s][0], one, words[s][1], one), input);
  }
#pragma unroll
  for (int u = 0; u < UNITS; u++) share_sums(shared.sums[half], sums[u], place, u);
  // Both columns of a token: each times itself, and both times ones.
  if (place.g / 2 == place.q && place.q >= NUM_TOKENS && place.q < 2 * NUM_TOKENS) {
    auto& to = shared.sums[half][place.q - NUM_TOKENS];
    to[SQUARES + place.g % 2][place.warp] = place.g % 2 ? moments[1] : moments[0];
    if (place.g % 2 == 0) to[SUM][place.warp] = moments[2] + moments[3];
  }
  sync_warps();
}

// The sums of `multiply` with the norm, and what follows it, published.
__device__ __forceinline__ void publish_into(const Shared& shared, const Result& result, const Into& into, int half,
                                             float epsilon, int64 to_other) {
  if (!result.mine) return;
  const auto& sums = shared.sums[half][result.token];
  float values[PAIRED][2];
#pragma unroll
  for (int i = 0; i < 2 * PAIRED; i++) {
    if (i < 2 || half == 1) values[i / 2][i % 2] = total(sums[result.row + i / 2 * UNIT + i % 2]);
  }
  const Spread spread(total(sums[SUM]), total(sums[SQUARES]) + total(sums[SQUARES + 1]));
  const float factor = rsqrtf(spread.variance + epsilon);
#pragma unroll
  for (int i = 0; i < 2 * PAIRED; i++) {
    const RowConstants& of_row = into.constants[i / 2][i % 2];
    values[i / 2][i % 2] = (values[i / 2][i % 2] - spread.mean * of_row.scales) * factor + of_row.base;
  }
  if (half == 1) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#if GATED
      const float gate = to_float(from_float<Element>(values[0][i]));
      values[0][i] = gate / (1.0f + __expf(-gate)) * to_float(from_float<Element>(values[1][i]));
#else
      values[0][i] = fmaxf(values[0][i], 0.0f);
#endif
    }
  }
  result.publish(values[0][0], values[0][1], to_other);
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

// Its sums, added and published. `carried` is the residual stream at the thread's results.
__device__ __forceinline__ void publish_back(const Shared& shared, const Result& result, uint32 bias,
                                             uint32& carried, int64 to_other) {
  if (!result.mine) return;
  float values[2], biases[2], before[2];
  unpack_pair<Element>(bias, biases[0], biases[1]);
  unpack_pair<Element>(carried, before[0], before[1]);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float value = total(shared.sums[2][result.token][result.row + i]) + biases[i];
    values[i] = to_float(from_float<Element>(value)) + before[i];
  }
  carried = pack_pair<Element>(values[0], values[1]);
  result.publish(values[0], values[1], to_other);
}
