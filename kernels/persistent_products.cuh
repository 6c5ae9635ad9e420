// The products of persistent_decode.cu, from weights in shared memory and collected inputs to what is published.

#pragma once

#include "persistent_beginning.cuh"
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

// Weights of a half to registers, when they have come.
__device__ __forceinline__ void take_into(Into& into, Shared& shared, const Result& result, int half,
                                          uint32 parity) {
  wait(shared_address(&shared.into_filled[half]), parity);
  into.load(shared.slots.into[half], result);
}
template <int INNER>
__device__ __forceinline__ void take_back(Back<INNER>& back, Shared& shared, const BackSlot<INNER>& slot,
                                          const Result& result, int half, uint32 parity) {
  wait(shared_address(&shared.back_filled[half]), parity);
  back.load(slot, result);
  tell_read(shared.back_read[half]);
}

// Queries, keys and values, by the weights that are in `into`; `before`: the residual stream of the layer before.
__device__ __forceinline__ void produce_qkv(Shared& shared, const Element* before, const Published& published,
                                            const Into& into, int layer, float epsilon, int64 to_other) {
  const Result result(published, 0);
  uint32 words[NORM_STEPS][2];
  if (layer == 0) {
    take_embeddings(words, shared);
  } else {
    collect<HIDDEN>(words, before, [] {});
  }
  tell_read(shared.into_read[0]);  // and not before, so that no weights come meanwhile, see `fill_slots`
  multiply(shared, into, words, 0);
  publish_into(shared, result, into, 0, epsilon, to_other);
}

// The middle, likewise; `meanwhile()` as in `await_steps`.
template <typename Meanwhile>
__device__ __forceinline__ void produce_middle(Shared& shared, const Published& published, const Into& into,
                                               float epsilon, int64 to_other, Meanwhile meanwhile) {
  const Result result(published, 1);
  uint32 words[NORM_STEPS][2];
  collect<HIDDEN>(words, published.stream(my_copy(), 0), meanwhile);
  multiply(shared, into, words, 1);
  publish_into(shared, result, into, 1, epsilon, to_other);
}

// A product that is added to the residual stream, by the weights that are in `back`.
template <int INNER, typename Collect>
__device__ __forceinline__ void produce_back(Shared& shared, const Published& published, const Back<INNER>& back,
                                             int half, uint32& carried, int64 to_other, Collect collect_input) {
  const Result result = Result::of_stream(published, half);
  uint32 words[steps_of(INNER)][2];
  collect_input(words);
  multiply_back<INNER>(shared, back, words);
  publish_back(shared, result, back.bias, carried, to_other);
}

// A layer of a thread block that multiplies. `into`: weights of queries, keys and values; then those of the next
// layer, if there is one.
//
// NOTE: who has published and then takes weights out of shared memory before it looks for what comes next sees it
// later. So weights are taken while there is more time, or behind a look.
__device__ __forceinline__ void produce_layer(Shared& shared, const Element* before, const Published& published,
                                              Into& into, uint32& carried, int layer, bool is_last, float epsilon,
                                              int64 to_other) {
  const bool adds = producer_index() < HIDDEN / UNIT;
  const uint32 parity = layer % 2;
  produce_qkv(shared, before, published, into, layer, epsilon, to_other);
  take_into(into, shared, Result(published, 1), 1, parity);
  tell_read(shared.into_read[1]);
  Back<MIDDLE> down;
  if (adds) {
    Back<ATTENDED> out;
    take_back(out, shared, shared.slots.out, Result::of_stream(published, 0), 0, parity);
    produce_back(shared, published, out, 0, carried, to_other,
                 [&](uint32(&words)[steps_of(ATTENDED)][2]) { collect_attended(words, published); });
  }
  produce_middle(shared, published, into, epsilon, to_other, [&] {
    if (adds) take_back(down, shared, shared.slots.down, Result::of_stream(published, 1), 1, parity);
  });
  const auto take_next = [&] {
    if (!is_last) take_into(into, shared, Result(published, 0), 0, parity ^ 1);
  };
  if (!adds) return take_next();
  produce_back(shared, published, down, 1, carried, to_other, [&](uint32(&words)[steps_of(MIDDLE)][2]) {
    collect<MIDDLE>(words, published.middle(my_copy()), take_next);
  });
}

// The layers of a thread block that multiplies.
__device__ __forceinline__ void produce_layers(Shared& shared, Element* memory, const Embeddings& embeddings,
                                               int num_layers, float epsilon, int64 to_other) {
  uint32 carried = 0;  // the residual stream at the thread's results
  if (producer_index() < HIDDEN / UNIT) {
    const Result result = Result::of_stream(Published(memory, 0), 0);
    carried = embeddings.pair(result.token, producer_index() * UNIT + result.row);
  }
  Into into;
  take_into(into, shared, Result(Published(memory, 0), 0), 0, 0);
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    produce_layer(shared, Published(memory, l - 1).stream(my_copy(), 1), Published(memory, l), into, carried, l,
                  l + 1 == num_layers, epsilon, to_other);
  }
}
