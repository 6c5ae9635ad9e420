// The four products of a layer of streamed_layers.cu, from collected inputs and the ring of weights to what is
// published.

#pragma once

#include "all_layers/layer_inputs.cuh"
#include "common/activation.cuh"

// Where in the ring the multiplying warps are, and which sums they write next.
struct Reading {
  Ring<SLOTS> at;
  int turn = 0;
};

// A warp's part of the slot that comes next, times `pieces` of which those from FIRST on are for its first stage,
// and for the second one those behind them, or the same. NUM_STAGES: those that are multiplied.
template <int FIRST, int NUM_STAGES, bool PAIRS_UNITS, int STEPS>
__device__ __forceinline__ void multiply_slot(UnitSums (&sums)[SLOT_STAGES], Shared& shared, const Place& place,
                                              Reading& reading, const uint4 (&pieces)[STEPS]) {
  const Element* from =
      shared.ring[reading.at.stage][0] + place.g * ROW_STRIDE + place.warp * STEP + place.q * PIECE;
  const uint32 read = shared_address(&shared.read[reading.at.stage]);
  wait(shared_address(&shared.filled[reading.at.stage]), reading.at.parity);
  reading.at.advance();
  uint4 weights[NUM_STAGES * STAGE_STEPS];
#pragma unroll
  for (int i = 0; i < NUM_STAGES * STAGE_STEPS; i++) {
    weights[i] = load_16(from + i / STAGE_STEPS * UNIT * ROW_STRIDE + i % STAGE_STEPS * NUM_WARPS * STEP);
  }
  const bool there = all_are_there(weights);
  __syncwarp();  // the order that one lane arrives for
  if (there && place.lane == 0) arrive(read);
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) {
#pragma unroll
    for (int stage = 0; stage < NUM_STAGES; stage++) {
      sums[stage].add(pieces[FIRST + (PAIRS_UNITS ? s : stage * STAGE_STEPS + s)],
                      weights[stage * STAGE_STEPS + s]);
    }
  }
}

// All slots of a row from SLOT on.
template <int INNER, int SLOT = 0>
__device__ __forceinline__ void multiply_row(UnitSums (&sums)[SLOT_STAGES], Shared& shared, const Place& place,
                                             Reading& reading, const uint4 (&pieces)[steps_of(INNER)]) {
  constexpr int LEFT = stages_of(INNER) - SLOT * SLOT_STAGES;
  constexpr int NUM_STAGES = is_short(INNER) || LEFT > SLOT_STAGES ? SLOT_STAGES : LEFT;
  multiply_slot<SLOT * SLOT_STEPS, NUM_STAGES, is_short(INNER)>(sums, shared, place, reading, pieces);
  if constexpr (SLOT + 1 < slots_of(INNER)) multiply_row<INNER, SLOT + 1>(sums, shared, place, reading, pieces);
}

// A thread's result of a group of units: it is the sum of those of all warps.
struct Result {
  int row, unit, token;
  const float* sums;  // of the first warp

  __device__ __forceinline__ Result(const Shared& shared, const Place& place, int turn)
      : row(place.thread % UNIT),
        unit(place.thread / UNIT % MOST_UNITS),
        token(place.thread / (UNIT * MOST_UNITS)),
        sums(&shared.sums[turn][0][unit][token % TOKENS * UNIT]) {}

  // `rows_below`: of another row of the unit.
  __device__ __forceinline__ float total(int rows_below = 0) const {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) sum += sums[w * MOST_UNITS * TOKEN_ROWS + (row + rows_below) % UNIT];
    return sum;
  }
};

// All units of rows of INNER elements, a group at a time. `finish(group's first unit, result, exists)` is called by
// all threads when the sums are there, those without a result among them.
template <int INNER, typename Finish>
__device__ __forceinline__ void multiply_units(Shared& shared, Reading& reading,
                                               const uint4 (&pieces)[steps_of(INNER)], int num_units,
                                               Finish finish) {
  constexpr int AT_ONCE = is_short(INNER) ? SLOT_STAGES : 1;
  const Place place;
#pragma unroll 1
  for (int first = 0; first < num_units; first += MOST_UNITS) {
    const int count = min(MOST_UNITS, num_units - first);
    float* to = &shared.sums[reading.turn][place.warp][0][place.g % TOKENS * UNIT + 2 * place.q];
#pragma unroll 1
    for (int u = 0; u < count; u += AT_ONCE, to += AT_ONCE * TOKEN_ROWS) {
      UnitSums sums[SLOT_STAGES];
      multiply_row<INNER>(sums, shared, place, reading, pieces);
      if (place.g < TOKENS) {  // a second unit that is not there has a place, and is nobody's
        float2 pair = make_float2(sums[0].of(0), sums[0].of(1));
        const float2 other = make_float2(sums[1].of(0), sums[1].of(1));
        if (AT_ONCE == 1) pair.x += other.x, pair.y += other.y;
        *reinterpret_cast<float2*>(to) = pair;
        if (AT_ONCE == 2) *reinterpret_cast<float2*>(to + TOKEN_ROWS) = other;
      }
    }
    sync_warps();
    const Result result(shared, place, reading.turn);
    reading.turn ^= 1;
    finish(first, result, result.unit < count && result.token < TOKENS);
  }
}

// The word of a lane's value and of that of its neighbour.
__device__ __forceinline__ uint32 pair_of_lanes(float value) {
  const float other = __shfl_xor_sync(FULL_WARP, value, 1);
  return Place().lane % 2 ? pack_pair<Element>(other, value) : pack_pair<Element>(value, other);
}

// What is added to a thread's queries, keys and values; that of the first group is asked for early.
struct QkvBias {
  const Element* rows = nullptr;  // of the thread block, or null
  float first = 0.0f;

  __device__ __forceinline__ void load(const Layer& layer, const Share& share, const Result& result) {
    if (layer.qkv_bias == nullptr) return;
    rows = layer.qkv_bias + share.first_qkv * UNIT;
    if (result.unit < share.num_qkv) first = of(result.unit * UNIT + result.row);
  }
  __device__ __forceinline__ float of(int row) const { return rows == nullptr ? 0.0f : to_float(rows[row]); }
};

// What happens to the results of each product.
template <int PRODUCT>
struct Finish {
  Shared& shared;
  const Share& share;
  const Published& published;
  const QkvBias& bias;
  int layer;
  Element* output;  // [TOKENS, HIDDEN], where the last product of the last layer goes; else null
  float& carried;   // the residual stream at the thread's result

  __device__ __forceinline__ void operator()(int first, const Result& result, bool exists) const {
    constexpr int RESULTS = UNIT / 2;  // of a unit of gates and values
    const int unit = first + result.unit, pair = result.row / 2 * 2;
    const bool odd = result.row % 2;
    float value = result.total();
    if constexpr (PRODUCT == QKV) {
      value += first == 0 || !exists ? bias.first : bias.of(unit * UNIT + result.row);
      const uint32 word = pair_of_lanes(value);
      const int place = result.token * QKV_ROWS + (share.first_qkv + unit) * UNIT + pair;
      if (exists && !odd) publish(reinterpret_cast<uint32*>(published.qkv() + place), word);
    } else if constexpr (PRODUCT == UP) {
      const uint32 word = pair_of_lanes(activate(rounded(value)) * rounded(result.total(RESULTS)));
      wait(shared_address(&shared.marked), layer % 2);
      const int place = result.token * padded(MIDDLE) + (share.first_up + unit) * RESULTS + pair;
      if (exists && result.row < RESULTS) publish_copies(published, Published::MIDDLE_AT + place, word, odd);
    } else {
      carried = rounded(rounded(value) + carried);
      const uint32 word = pair_of_lanes(carried);
      const int place = result.token * HIDDEN + (share.first_stream + unit) * UNIT + pair;
      if (!exists) return;
      if (output == nullptr) {
        publish_copies(published, (PRODUCT == OUT ? Published::HALFWAY_AT : Published::STREAM_AT) + place, word,
                       odd);
      } else if (!odd) {
        *reinterpret_cast<uint32*>(output + place) = word;
      }
    }
  }
};
