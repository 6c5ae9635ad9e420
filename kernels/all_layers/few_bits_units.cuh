// Units of weights of few bits of streamed_layers.cu, from the ring and collected inputs to the sums of all warps.
// Included by layer_products.cuh.
//
// A unit's 16 rows are those of `mma`, and its columns have the inputs of four runs, twice. Lane (g, q) has columns
// 2q and 2q + 1: the sums of run 2q % 4 are right in the first one and those of the run behind it in the second,
// and so each lane works out scales and minimums, and what weights that became floats without an exact zero have
// too much (raw_weights.cuh), for two runs of one row: row g where q is 0 or 1, g + 8 where it is 2 or 3.

#pragma once

template <int PRODUCT>
using RawOf = RawWeights<Element, Order<PRODUCT>::KIND>;

// Of the inputs of a lane's two runs in a slot: what products with raw weights have too much, and their sums.
struct RunSums {
  float excess[2], sums[2];
};

// Of a slot's pieces from FIRST on, by products with ones.
template <int PRODUCT, int FIRST, int COUNT>
__device__ __forceinline__ RunSums sum_runs(const uint4 (&pieces)[COUNT]) {
  constexpr uint32 ONES = Pairs<Element>::ONES;
  const uint32 apart[4] = {ONES, 0, 0, ONES};  // of x and z in row g, of y and w in row g + 8
  float both[2][4] = {};
#pragma unroll
  for (int i = 0; i < Order<PRODUCT>::RUN_PIECES; i++) {
    const uint4 piece = pieces[FIRST + i];
    const uint32 xy[2] = {piece.x, piece.y}, zw[2] = {piece.z, piece.w};
    mma_16x8x16<Element>(both[0], apart, xy);
    mma_16x8x16<Element>(both[1], apart, zw);
  }
  RunSums of;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float xz = both[0][i] + both[1][i], yw = both[0][2 + i] + both[1][2 + i];
    of.excess[i] = RawOf<PRODUCT>::SHIFTED ? xz * RawOf<PRODUCT>::XZ_ZERO + yw * RawOf<PRODUCT>::YW_ZERO : 0.0f;
    of.sums[i] = xz + yw;
  }
  return of;
}

// A lane's share of its row of a unit, and what the row is multiplied by once it is whole.
struct RowPart {
  float sum = 0.0f, scale = 1.0f;
};

// What a lane needs of a slot's scales, as bits: of its two runs, or of its row.
template <int PRODUCT>
struct SlotScales {
  static constexpr int COUNT = Order<PRODUCT>::GROUPED ? 2 : 1;
  uint32 scales[COUNT] = {}, minimums[COUNT] = {};

  // `runs`: of a row in the slot; `begins`: it is the row's first one.
  __device__ __forceinline__ void load(const Slot& slot, const Place& place, int runs, bool begins) {
    using Of = Order<PRODUCT>;
    const unsigned short* from = reinterpret_cast<const unsigned short*>(slot.scales);
    const int row = place.g + place.q / 2 * 8;
    if constexpr (Of::GROUPED) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int run = (place.q % 2 * 2 + i) * NUM_WARPS + place.warp;
        if (run >= runs) continue;
        scales[i] = from[row * Of::SCALE_STRIDE + run];
        minimums[i] = from[(UNIT + row) * Of::SCALE_STRIDE + run];
      }
    } else {
      if (begins) scales[0] = from[row];
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

// A warp's part of a slot in registers, 16 bytes of a row for each run, and its scales.
template <int PRODUCT>
struct Taken {
  uint4 bytes[WARP_RUNS][2];
  SlotScales<PRODUCT> scales;
};

// The slot that comes next, which is number `slot` of a row; then it has room for another.
// NOTE: the first one of a product is taken before its input is waited for. That is as much more as a ring can be
// ahead.
template <int PRODUCT>
__device__ __forceinline__ void take_slot(Taken<PRODUCT>& taken, Shared& shared, Reading& reading, int slot) {
  using Of = Order<PRODUCT>;
  const Place place;
  const int runs = slot + 1 < Of::SLOTS_OF_ROW ? SLOT_RUNS : Of::LAST_RUNS;  // of a row
  const Slot& from = shared.ring[reading.at.stage];
  const uint32 read = shared_address(&shared.read[reading.at.stage]);
  const unsigned char* rows = from.rows + place.g * ROW_STRIDE + place.warp * RUN_BYTES + place.q * 16;
  wait(shared_address(&shared.filled[reading.at.stage]), reading.at.parity);
  reading.at.advance();
  uint32 seen = 0;
#pragma unroll
  for (int r = 0; r < WARP_RUNS; r++) {
    // What lies behind the end of a row may be no number.
    const bool exists = Of::LAST_RUNS == SLOT_RUNS || r * NUM_WARPS + place.warp < runs;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      taken.bytes[r][u] = make_uint4(0, 0, 0, 0);
      if (exists) taken.bytes[r][u] = load_16(rows + u * 8 * ROW_STRIDE + r * NUM_WARPS * RUN_BYTES);
      seen |= taken.bytes[r][u].x;
    }
  }
  taken.scales.load(from, place, runs, slot == 0);
  const bool there = all_are_there(seen | taken.scales.bits());
  __syncwarp();  // the order that one lane arrives for
  if (there && place.lane == 0) arrive(read);
}

// Slot `slot` of a unit as it was taken, times its pieces from FIRST on; LAST: it is the last one of a row.
template <int PRODUCT, int FIRST, bool LAST, int COUNT>
__device__ __forceinline__ void multiply_slot(RowPart& part, const Taken<PRODUCT>& taken,
                                              const uint4 (&pieces)[COUNT], const RunSums& input, int slot, int q) {
  using Of = Order<PRODUCT>;
  using Stored = typename StoredAs<Of::BITS>::Type;  // 8 weights, in as many bytes
  float runs[WARP_RUNS][4] = {};
#pragma unroll
  for (int i = 0; i < Of::RUN_PIECES; i++) {
#pragma unroll
    for (int r = 0; r < ceil_div(LAST ? Of::LAST_RUNS : SLOT_RUNS, NUM_WARPS); r++) {
      const uint4 a = RawOf<PRODUCT>::piece(reinterpret_cast<const Stored*>(&taken.bytes[r][0])[i]);
      const uint4 b = RawOf<PRODUCT>::piece(reinterpret_cast<const Stored*>(&taken.bytes[r][1])[i]);
      multiply_step(runs[r], a, b, pieces[FIRST + i]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float even = q < 2 ? runs[i][i] : runs[i][2 + i], odd = q < 2 ? runs[2 + i][i] : runs[2 + i][2 + i];
    const float product = (q % 2 == 0 ? even : odd) - input.excess[i];
    if constexpr (Of::GROUPED) {
      part.sum += product * taken.scales.of(taken.scales.scales[i]);
      part.sum += input.sums[i] * taken.scales.of(taken.scales.minimums[i]);
    } else {
      part.sum += product;
    }
  }
  if (!Of::GROUPED && slot == 0) part.scale = taken.scales.of(taken.scales.scales[0]);
}

// The warp's sums of a unit, to [UNIT].
__device__ __forceinline__ void share_unit(float* to, const RowPart& part, const Place& place) {
  const float sum = warp_sum<1, 1>(part.sum) * part.scale;
  if (place.q % 2 == 0) to[place.q / 2 * 8 + place.g] = sum;
}

// Slots of a row from SLOT on, the first of which is taken, of pieces that a lane has in registers.
template <int PRODUCT, int SLOT = 0>
__device__ __forceinline__ void multiply_row(RowPart& part, Taken<PRODUCT>& taken, Shared& shared, Reading& reading,
                                             const uint4 (&pieces)[Order<PRODUCT>::PIECES],
                                             const RunSums (&inputs)[Order<PRODUCT>::SLOTS_OF_ROW], int q) {
  using Of = Order<PRODUCT>;
  constexpr bool LAST = SLOT + 1 == Of::SLOTS_OF_ROW;
  multiply_slot<PRODUCT, SLOT * Of::RUN_PIECES, LAST>(part, taken, pieces, inputs[SLOT], SLOT, q);
  if constexpr (!LAST) {
    take_slot(taken, shared, reading, SLOT + 1);
    multiply_row<PRODUCT, SLOT + 1>(part, taken, shared, reading, pieces, inputs, q);
  }
}

// The input of a product that a lane has in registers.
template <int PRODUCT>
struct HeldInput {
  const uint4 (&pieces)[Order<PRODUCT>::PIECES];
  RunSums runs[Order<PRODUCT>::SLOTS_OF_ROW];

  __device__ __forceinline__ HeldInput(const uint4 (&of)[Order<PRODUCT>::PIECES]) : pieces(of) { sum<0>(); }
  template <int SLOT>
  __device__ __forceinline__ void sum() {
    runs[SLOT] = sum_runs<PRODUCT, SLOT * Order<PRODUCT>::RUN_PIECES>(pieces);
    if constexpr (SLOT + 1 < Order<PRODUCT>::SLOTS_OF_ROW) sum<SLOT + 1>();
  }
  __device__ __forceinline__ void multiply(RowPart& part, Taken<PRODUCT>& taken, Shared& shared,
                                           Reading& reading) const {
    multiply_row<PRODUCT>(part, taken, shared, reading, pieces, runs, Place().q);
  }
};

// The same that lies in shared memory.
template <int PRODUCT>
struct SharedInput {
  const uint4* pieces;  // the lane's

  __device__ __forceinline__ SharedInput(Shared& shared) {
    const Place place;
    pieces = input_memory(shared, place.warp) + place.g % WARP_RUNS * Order<PRODUCT>::RUN_PIECES * 4 + place.q;
  }
  template <bool LAST>
  __device__ __forceinline__ void multiply_at(RowPart& part, const Taken<PRODUCT>& taken, int slot) const {
    using Of = Order<PRODUCT>;
    uint4 own[Of::RUN_PIECES];
#pragma unroll
    for (int i = 0; i < Of::RUN_PIECES; i++) own[i] = pieces[(slot * WARP_RUNS * Of::RUN_PIECES + i) * 4];
    multiply_slot<PRODUCT, 0, LAST>(part, taken, own, sum_runs<PRODUCT, 0>(own), slot, Place().q);
  }
  __device__ __forceinline__ void multiply(RowPart& part, Taken<PRODUCT>& taken, Shared& shared,
                                           Reading& reading) const {
    constexpr int LAST = Order<PRODUCT>::SLOTS_OF_ROW - 1;
#pragma unroll 1
    for (int slot = 0; slot < LAST; slot++) {
      multiply_at<false>(part, taken, slot);
      take_slot(taken, shared, reading, slot + 1);
    }
    multiply_at<true>(part, taken, LAST);
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
      input.multiply(part, taken, shared, reading);
      share_unit(to, part, place);
      if (first + u + 1 < num_units) take_slot(taken, shared, reading, 0);
    }
    sync_warps();
    const Result result(shared, place, reading.turn);
    reading.turn ^= 1;
    finish(first, result, result.unit < count && result.token < TOKENS);
  }
}
