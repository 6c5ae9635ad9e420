// All weights of a step on their way through a ring in shared memory, as in streamed_ring.cuh, from the first
// layer's to the last one's: they depend on nothing, so that the memory is never waited for between two products.

#pragma once

#include "all_layers/layer_filling.cuh"
#include "common/bulk_copy.cuh"

// Where the rows of a unit lie: 0 to 3 follow each other, and 4 to 7, which are values where the former are gates.
struct UnitRows {
  const Element* upper;
  int64 to_lower;
  int inner;

  // Up to a stage of them, from element `at` on.
  __device__ __forceinline__ void copy(Element* to, int at, int count, uint32 barrier) const {
#pragma unroll
    for (int r = 0; r < UNIT / 2; r++) {
      const Element* row = upper + r * inner + at;
      copy_bulk(to + r * ROW_STRIDE, row, count * sizeof(Element), barrier);
      copy_bulk(to + (r + UNIT / 2) * ROW_STRIDE, row + to_lower, count * sizeof(Element), barrier);
    }
  }
};

// The next slot of the ring, once there is room: what comes of one unit from element `at` on.
__device__ __forceinline__ void copy_slot(Shared& shared, Filling& filling, const UnitRows& rows, int at) {
  filling.make_room(shared);
  const int features = min(rows.inner - at, SLOT_FEATURES);
  const uint32 barrier = shared_address(&shared.filled[filling.at.stage]);
  expect_bytes(barrier, UNIT * features * sizeof(Element));
#pragma unroll 1
  for (int stage = 0; stage * STAGE_FEATURES < features; stage++) {
    const int count = min(STAGE_FEATURES, features - stage * STAGE_FEATURES);
    rows.copy(shared.ring[filling.at.stage][stage], at + stage * STAGE_FEATURES, count, barrier);
  }
  filling.advance();
}

// The same of as many short units as a slot has stages, or of those that are left.
__device__ __forceinline__ void copy_short_units(Shared& shared, Filling& filling, UnitRows rows, int64 to_next,
                                                 int left) {
  filling.make_room(shared);
  const int count = min(SLOT_STAGES, left);
  const uint32 barrier = shared_address(&shared.filled[filling.at.stage]);
  expect_bytes(barrier, UNIT * count * rows.inner * sizeof(Element));
#pragma unroll 1
  for (int stage = 0; stage < count; stage++, rows.upper += to_next) {
    rows.copy(shared.ring[filling.at.stage][stage], 0, rows.inner, barrier);
  }
  filling.advance();
}

// The work of the copying warp: slot after slot, 8 rows of a stage each time.
__device__ __forceinline__ void copy_weights(Shared& shared, const Share& share, int num_layers) {
  if (threadIdx.x % WARP_SIZE > 0) return;
  Filling filling;
#pragma unroll 1
  for (int i = 0; i < 4 * num_layers; i++) {
    const int product = i % 4, inner = inner_of_product(product), count = share.count(product);
    const int64 to_lower = static_cast<int64>(product == UP ? MIDDLE : UNIT / 2) * inner;
    const int64 to_next = (product == UP ? UNIT / 2 : UNIT) * inner;  // of the next unit
    const UnitRows rows{shared.layers[i / 4].weights[product] + share.first(product) * to_next, to_lower, inner};
    const auto unit = [&](int u) { return UnitRows{rows.upper + u * to_next, to_lower, inner}; };
    if (!MIDDLE_IS_SHARED && product == DOWN) {
#pragma unroll 1
      for (int at = 0; at < inner; at += SLOT_FEATURES) {
#pragma unroll 1
        for (int u = 0; u < count; u++) copy_slot(shared, filling, unit(u), at);
      }
    } else if (is_short(inner)) {
#pragma unroll 1
      for (int u = 0; u < count; u += SLOT_STAGES) {
        copy_short_units(shared, filling, unit(u), to_next, count - u);
      }
    } else {
#pragma unroll 1
      for (int u = 0; u < count; u++) {
#pragma unroll 1
        for (int at = 0; at < inner; at += SLOT_FEATURES) copy_slot(shared, filling, unit(u), at);
      }
    }
  }
}
