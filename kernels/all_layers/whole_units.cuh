// Units of weights of 16 bits of streamed_layers.cu, from the ring and collected inputs to the sums of all warps.
// Included by layer_products.cuh.

#pragma once

// Whether a warp has something to do in step `step` of slot `slot` of a row, or of two units of short rows.
template <int PRODUCT>
__host__ __device__ constexpr bool has_step(int slot, int step) {
  const int before = is_short(inner_of_product(PRODUCT)) ? step % STAGE_STEPS : slot * SLOT_STEPS + step;
  return before < Order<PRODUCT>::PIECES;
}

// A warp's part of a slot.
template <int PRODUCT>
struct Taken {
  uint4 weights[SLOT_STEPS];
};

// The slot that comes next, which is number SLOT of a row; then it has room for another.
template <int SLOT, int PRODUCT>
__device__ __forceinline__ void take(Taken<PRODUCT>& taken, Shared& shared, Reading& reading) {
  const Place place;
  const Element* from =
      shared.ring[reading.at.stage][0] + place.g * ROW_STRIDE + place.warp * STEP + place.q * PIECE;
  const uint32 read = shared_address(&shared.read[reading.at.stage]);
  wait(shared_address(&shared.filled[reading.at.stage]), reading.at.parity);
  reading.at.advance();
  uint32 seen = 0;
#pragma unroll
  for (int i = 0; i < SLOT_STEPS; i++) {
    if (!has_step<PRODUCT>(SLOT, i)) continue;
    taken.weights[i] = load_16(from + i / STAGE_STEPS * UNIT * ROW_STRIDE + i % STAGE_STEPS * NUM_WARPS * STEP);
    seen |= taken.weights[i].x;
  }
  const bool there = all_are_there(seen);
  __syncwarp();  // the order that one lane arrives for
  if (there && place.lane == 0) arrive(read);
}

// The first slot of a product, before its input is waited for.
template <int PRODUCT>
__device__ __forceinline__ void take_slot(Taken<PRODUCT>& taken, Shared& shared, Reading& reading, int) {
  take<0>(taken, shared, reading);
}

// All slots of a row from SLOT on, the first of which is taken; the next one is before that has been multiplied.
template <int PRODUCT, int SLOT = 0, typename Input>
__device__ __forceinline__ void multiply_row(UnitSums (&sums)[SLOT_STAGES], Taken<PRODUCT>& taken, Shared& shared,
                                             Reading& reading, const Input& input) {
  constexpr int INNER = inner_of_product(PRODUCT);
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) {
#pragma unroll
    for (int stage = 0; stage < SLOT_STAGES; stage++) {
      const int step = stage * STAGE_STEPS + s;
      if (!has_step<PRODUCT>(SLOT, step)) continue;
      sums[stage].add(input.piece(is_short(INNER) ? s : SLOT * SLOT_STEPS + step), taken.weights[step]);
    }
  }
  if constexpr (SLOT + 1 < slots_of(INNER)) {
    take<SLOT + 1>(taken, shared, reading);
    multiply_row<PRODUCT, SLOT + 1>(sums, taken, shared, reading, input);
  }
}

// The input of a product that a lane has in registers.
template <int PRODUCT>
struct HeldInput {
  const uint4 (&pieces)[Order<PRODUCT>::PIECES];

  __device__ __forceinline__ HeldInput(const uint4 (&of)[Order<PRODUCT>::PIECES]) : pieces(of) {}
  __device__ __forceinline__ uint4 piece(int i) const { return pieces[i]; }
};

#if MIDDLE_IS_SHARED
// The same that lies in shared memory.
template <int PRODUCT>
struct SharedInput {
  const uint4* pieces;  // the lane's

  __device__ __forceinline__ SharedInput(Shared& shared) {
    const Place place;
    pieces = input_memory(shared, place.warp).pieces + WarpInput::at(0, place.g % TOKENS, place.q);
  }
  __device__ __forceinline__ uint4 piece(int i) const { return pieces[WarpInput::at(i, 0, 0)]; }
};
#endif

// All units of a product, a group at a time, the first slot of which is taken. `finish(group's first unit,
// result, exists)` is called by all threads when the sums are there, those without a result among them; before the
// first ones `finish.ask()`, and in front of their barrier `finish.prepare()`.
template <int PRODUCT, typename Input, typename Finish>
__device__ __forceinline__ void multiply_units(Shared& shared, Reading& reading, Taken<PRODUCT>& taken,
                                               const Input& input, int num_units, Finish finish) {
  constexpr int INNER = inner_of_product(PRODUCT), AT_ONCE = is_short(INNER) ? SLOT_STAGES : 1;
  const Place place;
#pragma unroll 1
  for (int first = 0; first < num_units; first += MOST_UNITS) {
    const int count = min(MOST_UNITS, num_units - first);
    if (first == 0) finish.ask();
    float* to = &shared.sums[reading.turn][place.warp][0][place.g % TOKENS * UNIT + 2 * place.q];
#pragma unroll 1
    for (int u = 0; u < count; u += AT_ONCE, to += AT_ONCE * TOKEN_ROWS) {
      UnitSums sums[SLOT_STAGES];
      multiply_row<PRODUCT>(sums, taken, shared, reading, input);
      if (first + u + AT_ONCE < num_units) take<0>(taken, shared, reading);
      if (place.g < TOKENS) {  // a second unit that is not there has a place, and is nobody's
        float2 pair = make_float2(sums[0].of(0), sums[0].of(1));
        const float2 other = make_float2(sums[1].of(0), sums[1].of(1));
        if (AT_ONCE == 1) pair.x += other.x, pair.y += other.y;
        *reinterpret_cast<float2*>(to) = pair;
        if (AT_ONCE == 2) *reinterpret_cast<float2*>(to + TOKEN_ROWS) = other;
      }
    }
    if (first == 0) finish.prepare();
    sync_warps();
    const Result result(shared, place, reading.turn);
    reading.turn ^= 1;
    finish(first, result, result.unit < count && result.token < TOKENS);
  }
}

#if !MIDDLE_IS_SHARED
// What a lane multiplies by of a slot of the way down: asked for while others are multiplied, and there later.
struct SlotInput {
  uint4 pieces[SLOT_STEPS];
  uint32 highest;  // of all that came

  // Of slot `slot` of the lane's row of the middle. What lies behind the row's end is not asked for.
  __device__ __forceinline__ void ask(const Element* row, int slot) {
    highest = 0;
#pragma unroll
    for (int i = 0; i < SLOT_STEPS; i++) {
      if (has_piece(slot, i)) {
        const Element* from = row + Order<DOWN>::offset(slot * SLOT_STEPS + i);
        highest = max(highest, look_at(pieces[i], from));
      }
    }
  }

  // Asked for again where not all of the warp's are there.
  __device__ __forceinline__ void await(const Element* row, int slot) {
    look_again_until_there(highest == NOT_THERE, [&] {
      ask(row, slot);
      return highest == NOT_THERE;
    });
  }

  static __device__ __forceinline__ constexpr bool has_piece(int slot, int i) {
    return slot * SLOT_STEPS + i < Order<DOWN>::PIECES;
  }
};

// The way down of several tokens: each slot of the middle by all units of the thread block. `finish` as in
// `multiply_units`.
template <typename Finish>
__device__ __forceinline__ void multiply_by_slots(Shared& shared, Reading& reading, const Element* middle,
                                                  int num_units, Finish finish) {
  constexpr int NUM_SLOTS = slots_of(MIDDLE), HELD = NUM_SLOTS < 2 ? NUM_SLOTS : 2;
  constexpr int MOST_STREAM_UNITS = ceil_div(HIDDEN / UNIT, NUM_BLOCKS);
  static_assert(MOST_STREAM_UNITS <= MOST_UNITS, "their sums are finished together");
  const Place place;
  const Element* const row = middle + place.g % TOKENS * Order<DOWN>::PADDED + Order<DOWN>::first(place);
  UnitSums sums[MOST_STREAM_UNITS];
  SlotInput inputs[HELD];
  // One piece: a look at many takes longer.
  look_until_there([&] { return look_at(inputs[0].pieces[0], row) == NOT_THERE; });
#pragma unroll
  for (int slot = 0; slot < HELD; slot++) inputs[slot].ask(row, slot);
#pragma unroll
  for (int slot = 0; slot < NUM_SLOTS; slot++) {
    SlotInput& input = inputs[slot % HELD];
    input.await(row, slot);
#pragma unroll
    for (int u = 0; u < MOST_STREAM_UNITS; u++) {
      if (u == num_units) break;
      Taken<DOWN> taken;
      take<0>(taken, shared, reading);
#pragma unroll
      for (int i = 0; i < SLOT_STEPS; i++) {
        if (SlotInput::has_piece(slot, i)) sums[u].add(input.pieces[i], taken.weights[i]);
      }
    }
    if (slot + HELD < NUM_SLOTS) input.ask(row, slot + HELD);
  }
  if (place.g < TOKENS) {
    float* to = &shared.sums[reading.turn][place.warp][0][place.g * UNIT + 2 * place.q];
#pragma unroll
    for (int u = 0; u < MOST_STREAM_UNITS; u++, to += TOKEN_ROWS) {
      *reinterpret_cast<float2*>(to) = make_float2(sums[u].of(0), sums[u].of(1));
    }
  }
  sync_warps();
  const Result result(shared, place, reading.turn);
  reading.turn ^= 1;
  finish(0, result, result.unit < num_units && result.token < TOKENS);
}
#endif
