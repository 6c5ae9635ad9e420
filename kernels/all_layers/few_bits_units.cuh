// Units of weights of few bits of streamed_layers.cu, from the ring and collected inputs to the sums of all warps.
// Included by layer_products.cuh.
//
// A unit's 16 rows are those of `mma`, and its columns have the inputs of four runs, two columns each. Lane (g, q)
// has the sums of run q, of rows g and g + 8, and works out scales and minimums of those.

#pragma once

// A lane's share of rows g and g + 8 of a unit, and what row g (of an even q) or g + 8 is multiplied by once it is
// whole.
struct RowPart {
  float sums[2] = {}, scale = 1.0f;
};

// What a lane needs of a slot's scales, as bits: of its run in both rows, or of its row.
template <int PRODUCT>
struct SlotScales {
  static constexpr int COUNT = Order<PRODUCT>::GROUPED ? 2 : 1;
  uint32 scales[COUNT] = {}, minimums[COUNT] = {};

  // `runs`: of a row in the slot; `begins`: it is the row's first one.
  __device__ __forceinline__ void load(const Slot& slot, const Place& place, int runs, bool begins) {
    using Of = Order<PRODUCT>;
    const unsigned short* from = reinterpret_cast<const unsigned short*>(slot.scales);
    if constexpr (Of::GROUPED) {
      const int run = run_of(place.warp, place.q);
      if (run >= runs) return;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int row = place.g + 8 * i;
        scales[i] = from[row * Of::SCALE_STRIDE + run];
        minimums[i] = from[(UNIT + row) * Of::SCALE_STRIDE + run];
      }
    } else {
      if (begins) scales[0] = from[place.g + place.q % 2 * 8];
    }
  }
  __device__ __forceinline__ uint32 bits() const {
    uint32 bits = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) bits |= scales[i] | minimums[i];
    return bits;
  }
  static __device__ __forceinline__ float of(uint32 bits) {
    return to_float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
};

// A warp's part of a slot in registers, 16 bytes of a row for each run, and its scales. Where a product swaps them,
// odd rows have run r ^ 1 at place r.
template <int PRODUCT>
struct Taken {
  uint4 bytes[WARP_RUNS][2];
  SlotScales<PRODUCT> scales;
};

// The slot that comes next, which is number `slot` of a row; then it has room for another.
// NOTE: the first one of a product is taken before its input is waited for. That is as much more as a ring can be
// ahead.
template <int PRODUCT>
__device__ __forceinline__ void take_slot(Taken<PRODUCT>& taken, Shared& shared, Reading& reading, int slot,
                                          const Place& place = Place()) {
  using Of = Order<PRODUCT>;
  const int runs = slot + 1 < Of::SLOTS_OF_ROW ? SLOT_RUNS : Of::LAST_RUNS;  // of a row
  const Slot& from = shared.ring[reading.at.stage];
  const uint32 read = shared_address(&shared.read[reading.at.stage]);
  const unsigned char* rows = from.rows + place.g * Of::STRIDE + place.q * 16;
  wait(shared_address(&shared.filled[reading.at.stage]), reading.at.parity);
  reading.at.advance();
  uint32 seen = 0;
#pragma unroll
  for (int r = 0; r < WARP_RUNS; r++) {
    const int run = run_of(place.warp, Of::SWAPS ? r ^ place.g % 2 : r);
    // What lies behind the end of a row may be no number, or the next row.
    const bool exists = Of::LAST_RUNS == SLOT_RUNS || run < runs;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      taken.bytes[r][u] = make_uint4(0, 0, 0, 0);
      if (exists) taken.bytes[r][u] = load_16(rows + u * 8 * Of::STRIDE + run * RUN_BYTES);
      seen |= taken.bytes[r][u].x;
    }
  }
  taken.scales.load(from, place, runs, slot == 0);
  const bool there = all_are_there(seen | taken.scales.bits());
  __syncwarp();  // the order that one lane arrives for
  if (there && place.lane == 0) arrive(read);
}

// One of four, without a look at memory.
template <typename T>
__device__ __forceinline__ T one_of(T a, T b, T c, T d, int number) {
  const T even = number & 2 ? c : a, odd = number & 2 ? d : b;
  return number & 1 ? odd : even;
}

// Slot `slot` of a unit as it was taken, times its input; LAST: it is the last one of a row.
template <int PRODUCT, bool LAST>
__device__ __forceinline__ void multiply_slot(RowPart& part, const Taken<PRODUCT>& taken,
                                              const SlotInput<PRODUCT>& input, int slot, const Place& place) {
  using Of = Order<PRODUCT>;
  RunProducts<PRODUCT> runs[WARP_RUNS];
#pragma unroll
  for (int r = 0; r < (LAST ? Of::LAST_WARP_RUNS : WARP_RUNS); r++) {
    runs[r].add(taken.bytes[r][0], taken.bytes[r][1], input.operands);
  }
  const int own = Of::SWAPS ? place.q ^ place.g % 2 : place.q;
  const auto sum = [&](int i) { return one_of(runs[0].of(i), runs[1].of(i), runs[2].of(i), runs[3].of(i), own); };
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float product = input.product(sum(2 * i), sum(2 * i + 1));
    if constexpr (Of::GROUPED) {
      part.sums[i] += product * taken.scales.of(taken.scales.scales[i]);
      part.sums[i] += input.worth.sum * taken.scales.of(taken.scales.minimums[i]);
    } else {
      part.sums[i] += product;
    }
  }
  if (!Of::GROUPED && slot == 0) part.scale = taken.scales.of(taken.scales.scales[0]);
}

// The warp's sums of a unit, to [UNIT].
__device__ __forceinline__ void share_unit(float* to, const RowPart& part, const Place& place) {
  const bool below = place.q % 2;  // of rows g + 8
  const float own = below ? part.sums[1] : part.sums[0], others = below ? part.sums[0] : part.sums[1];
  const float sum = warp_sum<2, 2>(own + __shfl_xor_sync(FULL_WARP, others, 1)) * part.scale;
  if (place.q < 2) to[place.q * 8 + place.g] = sum;
}

// Slot `slot` of a unit, and then the one behind it is taken: of the row, or of the next one if it `goes_on`.
template <int PRODUCT, bool LAST>
__device__ __forceinline__ void multiply_and_take(RowPart& part, Taken<PRODUCT>& taken, Shared& shared,
                                                  Reading& reading, const SlotInput<PRODUCT>& input, int slot,
                                                  bool goes_on, const Place& place) {
  multiply_slot<PRODUCT, LAST>(part, taken, input, slot, place);
  if (!LAST || goes_on) take_slot(taken, shared, reading, LAST ? 0 : slot + 1, place);
}

// Slots of a row from SLOT on, of inputs that a lane has in registers.
template <int PRODUCT, int SLOT = 0>
__device__ __forceinline__ void multiply_row(RowPart& part, Taken<PRODUCT>& taken, Shared& shared, Reading& reading,
                                             const SlotInput<PRODUCT> (&inputs)[Order<PRODUCT>::SLOTS_OF_ROW],
                                             bool goes_on, const Place& place) {
  constexpr bool LAST = SLOT + 1 == Order<PRODUCT>::SLOTS_OF_ROW;
  multiply_and_take<PRODUCT, LAST>(part, taken, shared, reading, inputs[SLOT], SLOT, goes_on, place);
  if constexpr (!LAST) multiply_row<PRODUCT, SLOT + 1>(part, taken, shared, reading, inputs, goes_on, place);
}

// The input of a product that a lane has in registers.
template <int PRODUCT>
struct HeldInput {
  SlotInput<PRODUCT> slots[Order<PRODUCT>::SLOTS_OF_ROW];

  __device__ __forceinline__ HeldInput(const uint4 (&pieces)[Order<PRODUCT>::PIECES]) {
    const Place place;
#pragma unroll
    for (int slot = 0; slot < Order<PRODUCT>::SLOTS_OF_ROW; slot++) {
      slots[slot].take(pieces + slot * Order<PRODUCT>::RUN_PIECES, place);
    }
  }
  __device__ __forceinline__ void multiply(RowPart& part, Taken<PRODUCT>& taken, Shared& shared, Reading& reading,
                                           bool goes_on, const Place& place) const {
    multiply_row<PRODUCT>(part, taken, shared, reading, slots, goes_on, place);
  }
};

// The same that lies in shared memory.
template <int PRODUCT>
struct SharedInput {
  const WarpInput& memory;

  __device__ __forceinline__ SharedInput(Shared& shared) : memory(input_memory(shared, Place().warp)) {}

  template <bool LAST>
  __device__ __forceinline__ void multiply_at(RowPart& part, Taken<PRODUCT>& taken, Shared& shared,
                                              Reading& reading, int slot, bool goes_on, const Place& place) const {
    SlotInput<PRODUCT> own;
    own.load(memory, slot, place);
    multiply_and_take<PRODUCT, LAST>(part, taken, shared, reading, own, slot, goes_on, place);
  }
  __device__ __forceinline__ void multiply(RowPart& part, Taken<PRODUCT>& taken, Shared& shared, Reading& reading,
                                           bool goes_on, const Place& place) const {
    constexpr int LAST = Order<PRODUCT>::SLOTS_OF_ROW - 1;
#pragma unroll 1
    for (int slot = 0; slot < LAST; slot++) {
      multiply_at<false>(part, taken, shared, reading, slot, goes_on, place);
    }
    multiply_at<true>(part, taken, shared, reading, LAST, goes_on, place);
  }
};

// All units of a product, a group at a time, the first slot of which is taken. `finish(group's first unit, result,
// exists)` is called by all threads when the sums are there, those without a result among them.
template <int PRODUCT, typename Input, typename Finish>
__device__ __forceinline__ void multiply_units(Shared& shared, Reading& reading, Taken<PRODUCT>& taken,
                                               const Input& input, int num_units, Finish finish) {
  const Place place;
#pragma unroll 1
  for (int first = 0; first < num_units; first += MOST_UNITS) {
    const int count = min(MOST_UNITS, num_units - first);
    float* to = shared.sums[reading.turn][place.warp][0];
#pragma unroll 1
    for (int u = 0; u < count; u++, to += TOKEN_ROWS) {
      RowPart part;
      input.multiply(part, taken, shared, reading, first + u + 1 < num_units, place);
      share_unit(to, part, place);
    }
    sync_warps();
    const Result result(shared, place, reading.turn);
    reading.turn ^= 1;
    finish(first, result, result.unit < count && result.token < TOKENS);
  }
}
