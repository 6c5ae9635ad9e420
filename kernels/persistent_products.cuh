// The products of persistent_decode.cu, from weights in shared memory and collected inputs to what is published.

#pragma once

#include "persistent_inputs.cuh"
#include "persistent_weights.cuh"

// The lane's operand of step `s` out of what the warp has collected.
__device__ __forceinline__ uint4 input_piece(const Shared& shared, const Place& place, int s) {
  return load_16(shared.rows[place.warp] + min(place.g, NUM_TOKENS - 1) * ROW_STRIDE + s * STEP + place.q * PIECE);
}

// Lays a warp's sums of 16 rows beside those of the others.
__device__ __forceinline__ void share_sums(float (&to)[NUM_TOKENS * SUM_STRIDE], const float (&sums)[4],
                                           const Place& place, int tile) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int token = 2 * place.q + i % 2, row = (2 * tile + i / 2) * UNIT + place.g;
    if (token < NUM_TOKENS && row < RESULT_ROWS) to[token * SUM_STRIDE + row] = sums[i];
  }
}

__device__ __forceinline__ float total(const float (&sums)[NUM_WARPS][NUM_TOKENS * SUM_STRIDE], int row,
                                       int token) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) sum += sums[w][token * SUM_STRIDE + row];
  return sum;
}

// `value` of the thread and of its neighbour, published at `place` if that is the thread's to do.
__device__ __forceinline__ void publish_pair(Element* place, int64 to_other, float value, bool valid) {
  const float next = __shfl_down_sync(FULL_WARP, value, 1);
  if (!valid || threadIdx.x % 2) return;
  publish(reinterpret_cast<uint32*>(place), pack_pair<Element>(value, next));
  mark_not_there(reinterpret_cast<uint32*>(place + to_other));
}

// What a lane needs of a slot, in registers before its input is there.
struct Into {
  uint4 weights[2 * TILES][NORM_STEPS];
  NormWeights norm;
  float bias;  // of the thread's result

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
    norm.load(slot.scale, slot.shift);
    bias = to_float(slot.bias[place.thread % RESULT_ROWS]);
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

// The product of the rows that lie normalised in shared memory. Ends in a barrier.
__device__ __forceinline__ void multiply(Shared& shared, const Into& into) {
  const Place place;
  uint4 pieces[NORM_STEPS];
#pragma unroll
  for (int s = 0; s < NORM_STEPS; s++) pieces[s] = input_piece(shared, place, s);
#pragma unroll
  for (int t = 0; t < TILES; t++) {
    float sums[4] = {};
#pragma unroll
    for (int s = 0; s < NORM_STEPS; s++) {
      multiply_step(sums, into.weights[2 * t][s], into.weights[2 * t + 1][s], pieces[s]);
    }
    share_sums(shared.sums[0][place.warp], sums, place, t);
  }
  sync_warps();
}

// The sums of `multiply`, finished and published.
__device__ __forceinline__ void publish_into(const Shared& shared, const Published& published, int half, float bias,
                                             int64 to_other) {
  const Place place;
  constexpr int RESULTS = RESULT_ROWS * NUM_TOKENS;
  if (place.thread - place.lane >= (half == 0 ? 1 : COPIES) * RESULTS) return;
  const int row = place.thread % RESULT_ROWS, token = place.thread % RESULTS / RESULT_ROWS;
  const int copy = place.thread / RESULTS;
  const Unit unit(half, row / UNIT);
  bool valid = unit.exists && copy < (half == 0 ? 1 : COPIES);
  float value = total(shared.sums[0], row, token) + bias;
  if (half == 1) {
#if GATED
    const float other = total(shared.sums[0], min(row + UNIT, RESULT_ROWS - 1), token);
    value = to_float(from_float<Element>(value)), valid = valid && row / UNIT % 2 == 0;
    value = value / (1.0f + __expf(-value)) * to_float(from_float<Element>(other));
#else
    value = fmaxf(value, 0.0f);
#endif
  }
  Element* to = half == 0 ? published.qkv() + token * QKV_ROWS : published.middle(copy) + token * MIDDLE;
  publish_pair(to + unit.row + row % UNIT, to_other, value, valid);
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
    if (token < NUM_TOKENS) shared.sums[1][place.warp][token * SUM_STRIDE + place.g] = sums[i] + others[i];
  }
  sync_warps();
}

// Its sums, added and published. `carried` is the residual stream at the thread's result.
__device__ __forceinline__ void publish_back(const Shared& shared, const Published& published, int half, float bias,
                                             float& carried, int64 to_other) {
  const Place place;
  constexpr int RESULTS = UNIT * NUM_TOKENS;
  if (place.thread - place.lane >= COPIES * RESULTS) return;
  const int row = place.thread % UNIT, token = place.thread % RESULTS / UNIT, copy = place.thread / RESULTS;
  const float value = total(shared.sums[1], row, token) + bias;
  carried = to_float(from_float<Element>(to_float(from_float<Element>(value)) + carried));
  Element* to = published.stream(min(copy, COPIES - 1), half) + token * HIDDEN + producer_index() * UNIT + row;
  publish_pair(to, to_other, carried, copy < COPIES);
}

// One product that is added to the residual stream, from waiting for its input to publishing its result.
template <int INNER, typename Collect>
__device__ __forceinline__ void produce_back(Shared& shared, const BackSlot<INNER>& slot,
                                             const Published& published, int half, uint32 parity, float& carried,
                                             int64 to_other, Collect collect_input) {
  Back<INNER> back;
  wait(shared_address(&shared.back_filled[half]), parity);
  back.load(slot);
  tell_read(shared.back_read[half]);
  collect_input();
  multiply_back(shared, back);
  publish_back(shared, published, half, back.bias, carried, to_other);
}

// One product behind a norm, likewise; `collect_input` leaves the rows in shared memory.
template <typename Collect>
__device__ __forceinline__ void produce_into(Shared& shared, const Published& published, int half, uint32 parity,
                                             float epsilon, int64 to_other, Collect collect_input) {
  Into into;
  wait(shared_address(&shared.into_filled[half]), parity);
  into.load(shared.slots.into[half]);
  tell_read(shared.into_read[half]);
  collect_input();
  normalise(shared, into.norm, epsilon);
  multiply(shared, into);
  publish_into(shared, published, half, into.bias, to_other);
}

// The layers of a thread block that multiplies.
__device__ __forceinline__ void produce_layers(Shared& shared, Element* memory, const Embeddings& embeddings,
                                               int num_layers, float epsilon, int64 to_other) {
  const bool adds = producer_index() < HIDDEN / UNIT;
  float carried = 0.0f;  // the residual stream at the thread's result
  if (adds) {
    carried = embeddings.at(threadIdx.x / UNIT % NUM_TOKENS, producer_index() * UNIT + threadIdx.x % UNIT);
  }
#pragma unroll 1
  for (int i = 0; i < 2 * num_layers; i++) {
    const int half = i % 2;
    const uint32 parity = i / 2 % 2;
    const Published published(memory, i / 2);
    produce_into(shared, published, half, parity, epsilon, to_other, [&] {
      if (i == 0) {
        collect_embeddings(shared, embeddings);
      } else {
        collect<HIDDEN>(shared, Published(memory, (i - 1) / 2).stream(my_copy(), 1 - half));
      }
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
