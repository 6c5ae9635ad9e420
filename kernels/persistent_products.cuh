// The products of persistent_decode.cu, from weights in shared memory and collected inputs to what is published.

#pragma once

#include "persistent_norm.cuh"
#include "persistent_results.cuh"

// The lane's operand of step `s` out of what the warp has collected.
__device__ __forceinline__ uint4 input_piece(const Shared& shared, const Place& place, int s) {
  return load_16(shared.rows[place.warp] + min(place.g, NUM_TOKENS - 1) * ROW_STRIDE + s * STEP + place.q * PIECE);
}

// What a lane needs of a slot, in registers before its input is there.
struct Into {
  uint4 weights[2 * TILES][NORM_STEPS];
  uint32 scale[NORM_WORDS];
  RowConstants constants;  // of the thread's result

  __device__ __forceinline__ void load(const IntoSlot& slot) {
    const Place place;
    const Element* from = slot.rows[place.g] + place.warp * segment_of(HIDDEN) + place.q * PIECE;
#pragma unroll
    for (int u = 0; u < 2 * TILES; u++) {
#pragma unroll
      for (int s = 0; s < NORM_STEPS; s++) {
        weights[u][s] = u < UNITS ? load_16(from + u * UNIT * HIDDEN_STRIDE + s * STEP) : make_uint4(0, 0, 0, 0);
      }
    }
    const int first = place.warp * segment_of(HIDDEN) / 2 + min(place.lane, NORM_LANES - 1) * NORM_WORDS;
#pragma unroll
    for (int w = 0; w < NORM_WORDS; w++) scale[w] = reinterpret_cast<const uint32*>(slot.scale)[first + w];
    constants = slot.constants[place.thread % RESULT_ROWS];
  }
};

template <int INNER>
struct Back {
  uint4 weights[steps_of(INNER)];
  float bias;

  __device__ __forceinline__ void load(const BackSlot<INNER>& slot) {
    const Place place;
    const Element* from = slot.rows[place.g] + place.warp * segment_of(INNER) + place.q * PIECE;
#pragma unroll
    for (int s = 0; s < steps_of(INNER); s++) weights[s] = load_16(from + s * STEP);
    bias = to_float(slot.bias[place.thread % UNIT]);
  }
};

// The product of the scaled rows in shared memory; meanwhile their moments. Ends in a barrier.
__device__ __forceinline__ void multiply(Shared& shared, const Into& into, const Moments& moments, int half) {
  const Place place;
  float sums[TILES][4] = {};
#pragma unroll
  for (int s = 0; s < NORM_STEPS; s++) {
    const uint4 piece = input_piece(shared, place, s);
#pragma unroll
    for (int t = 0; t < TILES; t++)
      multiply_step(sums[t], into.weights[2 * t][s], into.weights[2 * t + 1][s], piece);
  }
  share_moments(shared, moments, half);
#pragma unroll
  for (int t = 0; t < TILES; t++) share_sums(shared.sums[half][place.warp], sums[t], place, t);
  sync_warps();
}

// The sums of `multiply`, with the norm, finished and published.
__device__ __forceinline__ void publish_into(const Shared& shared, const Result& result, const Into& into, int half,
                                             float epsilon, int64 to_other) {
  if (!result.mine) return;
  const Spread spread(shared, half, result.token);
  const float sum = total(shared.sums[half], result.row, result.token) - spread.mean * into.constants.scales;
  float value = sum * rsqrtf(spread.variance + epsilon) + into.constants.base;
  if (half == 1) {
#if GATED
    const float other = to_float(from_float<Element>(__shfl_down_sync(FULL_WARP, value, UNIT)));
    value = to_float(from_float<Element>(value));
    value = value / (1.0f + __expf(-value)) * other;
#else
    value = fmaxf(value, 0.0f);
#endif
  }
  result.publish(value, to_other);
}

// The product of what lies in shared memory, to be added to the residual stream. Ends in a barrier.
template <int INNER>
__device__ __forceinline__ void multiply_back(Shared& shared, const Back<INNER>& back) {
  const Place place;
  float sums[4] = {}, others[4] = {};  // two chains of products that do not wait for each other
#pragma unroll
  for (int s = 0; s < steps_of(INNER); s++) {
    multiply_step(s % 2 ? others : sums, back.weights[s], make_uint4(0, 0, 0, 0), input_piece(shared, place, s));
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int token = 2 * place.q + i;
    if (token < NUM_TOKENS) shared.sums[2][place.warp][token * SUM_STRIDE + place.g] = sums[i] + others[i];
  }
  sync_warps();
}

// Its sums, added and published. `carried` is the residual stream at the thread's result.
__device__ __forceinline__ void publish_back(const Shared& shared, const Result& result, float bias, float& carried,
                                             int64 to_other) {
  if (!result.mine) return;
  const float value = total(shared.sums[2], result.row, result.token) + bias;
  carried = to_float(from_float<Element>(to_float(from_float<Element>(value)) + carried));
  result.publish(carried, to_other);
}

// One product that is added to the residual stream, from waiting for its input to publishing its result.
template <int INNER, typename Collect>
__device__ __forceinline__ void produce_back(Shared& shared, const BackSlot<INNER>& slot,
                                             const Published& published, int half, uint32 parity, float& carried,
                                             int64 to_other, Collect collect_input) {
  const Result result = Result::of_stream(published, half);
  Back<INNER> back;
  wait(shared_address(&shared.back_filled[half]), parity);
  back.load(slot);
  tell_read(shared.back_read[half]);
  collect_input();
  multiply_back(shared, back);
  publish_back(shared, result, back.bias, carried, to_other);
}

// One product behind a norm, likewise; `collect_input` leaves the rows in shared memory. `means` are those of the
// half before, about as large as those of this one, which take their place.
template <typename Collect>
__device__ __forceinline__ void produce_into(Shared& shared, const Published& published, int half, uint32 parity,
                                             float epsilon, int64 to_other, float (&means)[NUM_TOKENS],
                                             Collect collect_input) {
  const Result result(published, half);
  Into into;
  wait(shared_address(&shared.into_filled[half]), parity);
  into.load(shared.slots.into[half]);
  if (half == 1) tell_read(shared.into_read[half]);
  collect_input();
  if (half == 0) tell_read(shared.into_read[half]);  // so that no weights come meanwhile, see `fill_slots`
  multiply(shared, into, scale_rows(shared, into.scale, means), half);
  publish_into(shared, result, into, half, epsilon, to_other);
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) means[t] += Spread(shared, half, t).mean;
}

// The layers of a thread block that multiplies.
__device__ __forceinline__ void produce_layers(Shared& shared, Element* memory, const Embeddings& embeddings,
                                               int num_layers, float epsilon, int64 to_other) {
  const bool adds = producer_index() < HIDDEN / UNIT;
  float means[NUM_TOKENS] = {};
  float carried = 0.0f;  // the residual stream at the thread's result
  if (adds) {
    carried = embeddings.at(threadIdx.x / UNIT % NUM_TOKENS, producer_index() * UNIT + threadIdx.x % UNIT);
  }
  collect_embeddings(shared, embeddings);
#pragma unroll 1
  for (int i = 0; i < 2 * num_layers; i++) {
    const int half = i % 2;
    const uint32 parity = i / 2 % 2;
    const Published published(memory, i / 2);
    produce_into(shared, published, half, parity, epsilon, to_other, means, [&] {
      if (i > 0) collect<HIDDEN>(shared, Published(memory, (i - 1) / 2).stream(my_copy(), 1 - half));
    });
    if (!adds) continue;
    if (half == 0) {
      produce_back(shared, shared.slots.out, published, 0, parity, carried, to_other,
                   [&] { collect_attended(shared, published); });
    } else {
      produce_back(shared, shared.slots.down, published, 1, parity, carried, to_other,
                   [&] { collect<MIDDLE>(shared, published.middle(my_copy())); });
    }
  }
}
