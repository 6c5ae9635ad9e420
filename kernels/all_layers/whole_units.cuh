// Units of weights of 16 bits of streamed_layers.cu, from the ring and collected inputs to the sums of all warps.
// Included by layer_products.cuh.

#pragma once

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
                                             Reading& reading,
                                             const uint4 (&pieces)[stages_of(INNER) * STAGE_STEPS]) {
  constexpr int LEFT = stages_of(INNER) - SLOT * SLOT_STAGES;
  constexpr int NUM_STAGES = is_short(INNER) || LEFT > SLOT_STAGES ? SLOT_STAGES : LEFT;
  multiply_slot<SLOT * SLOT_STEPS, NUM_STAGES, is_short(INNER)>(sums, shared, place, reading, pieces);
  if constexpr (SLOT + 1 < slots_of(INNER)) multiply_row<INNER, SLOT + 1>(sums, shared, place, reading, pieces);
}

// Weights are taken out of the ring when they are multiplied.
template <int PRODUCT>
struct Taken {};
template <int PRODUCT>
__device__ __forceinline__ void take_slot(Taken<PRODUCT>&, Shared&, Reading&, int) {}

// The input of a product as `multiply_units` takes it.
template <int PRODUCT>
struct HeldInput {
  const uint4 (&pieces)[Order<PRODUCT>::PIECES];

  __device__ __forceinline__ HeldInput(const uint4 (&of)[Order<PRODUCT>::PIECES]) : pieces(of) {}
};

// All units of a product, a group at a time. `finish(group's first unit, result, exists)` is called by
// all threads when the sums are there, those without a result among them.
template <int PRODUCT, typename Finish>
__device__ __forceinline__ void multiply_units(Shared& shared, Reading& reading, const Taken<PRODUCT>&,
                                               const HeldInput<PRODUCT>& input, int num_units, Finish finish) {
  constexpr int INNER = inner_of_product(PRODUCT), AT_ONCE = is_short(INNER) ? SLOT_STAGES : 1;
  const Place place;
#pragma unroll 1
  for (int first = 0; first < num_units; first += MOST_UNITS) {
    const int count = min(MOST_UNITS, num_units - first);
    float* to = &shared.sums[reading.turn][place.warp][0][place.g % TOKENS * UNIT + 2 * place.q];
#pragma unroll 1
    for (int u = 0; u < count; u += AT_ONCE, to += AT_ONCE * TOKEN_ROWS) {
      UnitSums sums[SLOT_STAGES];
      multiply_row<INNER>(sums, shared, place, reading, input.pieces);
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
