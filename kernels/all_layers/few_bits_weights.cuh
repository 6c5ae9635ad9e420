// All weights of few bits of a step on their way through a ring in shared memory, as layer_weights.cuh has those of
// 16: a slot has a unit's rows, or as much of them as there is room for, and their scales.

#pragma once

#include "all_layers/layer_filling.cuh"
#include "common/bulk_copy.cuh"

// Scales of both halves of a unit's rows, `first` and `second` of the weight; `runs`: of a row in the slot.
template <int PRODUCT>
__device__ __forceinline__ void copy_scales(Slot& slot, const Layer& layer, int first, int second, int at_slot,
                                            int runs, uint32 barrier) {
  using Of = Order<PRODUCT>;
  constexpr int HALF = UNIT / 2, GROUPS = Of::GROUPED ? Of::ROW_RUNS : 1;
  constexpr bool TOGETHER = !Of::GROUPED || Of::SLOTS_OF_ROW == 1;  // of all rows in one piece
  constexpr int STRIDE = Of::GROUPED ? Of::SCALE_STRIDE : 1;
  const int count = TOGETHER ? HALF * GROUPS : runs;  // of a copy
#pragma unroll
  for (int part = 0; part < 1 + Of::GROUPED; part++) {
    const __half* scales = (part == 0 ? layer.scales : layer.minimums)[PRODUCT];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const __half* from = scales + static_cast<int64>(half == 0 ? first : second) * GROUPS + at_slot * SLOT_RUNS;
      __half* to = slot.scales + (part * UNIT + half * HALF) * STRIDE;
#pragma unroll
      for (int row = 0; row < (TOGETHER ? 1 : HALF); row++) {
        copy_bulk(to + row * STRIDE, from + row * GROUPS, count * sizeof(__half), barrier);
      }
    }
  }
}

// What a warp brings of a slot. There is one for each: scales are small, but up to two copies a row.
enum Brings { ROWS, SCALES };

// Slot `at_slot` of a unit.
template <int PRODUCT, int BRINGS>
__device__ __forceinline__ void fill_slot(Shared& shared, const Layer& layer, Filling& filling, int unit,
                                          int at_slot) {
  using Of = Order<PRODUCT>;
  constexpr int HALF = UNIT / 2;
  const int runs = at_slot + 1 < Of::SLOTS_OF_ROW ? SLOT_RUNS : Of::LAST_RUNS,
            bytes = runs * RUN_BYTES;  // of a row
  filling.make_room(shared);
  Slot& slot = shared.ring[filling.at.stage];
  const uint32 barrier = shared_address(&shared.filled[filling.at.stage]);
  filling.advance();
  // Gates, and the values that belong to them, or rows that follow each other.
  const int first = unit * (PRODUCT == UP ? HALF : UNIT), second = first + (PRODUCT == UP ? MIDDLE : HALF);
  if constexpr (BRINGS == SCALES) {
    const bool scaled = Of::GROUPED || at_slot == 0;
    expect_bytes(barrier, scaled ? UNIT * sizeof(__half) * (Of::GROUPED ? 2 * runs : 1) : 0);
    if (scaled) copy_scales<PRODUCT>(slot, layer, first, second, at_slot, runs, barrier);
  } else {
    expect_bytes(barrier, UNIT * bytes);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const StoredWeight* from = layer.weights[PRODUCT] +
                                 static_cast<int64>(half == 0 ? first : second) * Of::ROW_BYTES +
                                 at_slot * SLOT_ROW_BYTES;
      constexpr int AT_ONCE = Of::WHOLE_ROWS ? HALF : 1;  // rows of a copy
#pragma unroll
      for (int row = 0; row < HALF; row += AT_ONCE) {
        copy_bulk(slot.rows + (half * HALF + row) * Of::STRIDE, from + row * Of::ROW_BYTES, AT_ONCE * bytes,
                  barrier);
      }
    }
  }
}

template <int PRODUCT, int BRINGS>
__device__ __forceinline__ void copy_product(Shared& shared, const Share& share, const Layer& layer,
                                             Filling& filling) {
  using Of = Order<PRODUCT>;
  const int end = share.first(PRODUCT) + share.count(PRODUCT);
#pragma unroll 1
  for (int unit = share.first(PRODUCT); unit < end; unit++) {
#pragma unroll 1
    for (int slot = 0; slot < Of::SLOTS_OF_ROW; slot++) {
      fill_slot<PRODUCT, BRINGS>(shared, layer, filling, unit, slot);
    }
  }
}

// The work of a copying warp.
// NOTE: of the lane that is elected, as in streamed_ring.cuh.
template <int BRINGS>
__device__ __forceinline__ void copy_weights(Shared& shared, const Share& share, int num_layers) {
  if (!is_elected()) return;
  Filling filling;
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    const Layer& layer = shared.layers[l];
    copy_product<QKV, BRINGS>(shared, share, layer, filling);
    if constexpr (VALUES_APART) copy_product<VALUES, BRINGS>(shared, share, layer, filling);
    copy_product<OUT, BRINGS>(shared, share, layer, filling);
    copy_product<UP, BRINGS>(shared, share, layer, filling);
    copy_product<DOWN, BRINGS>(shared, share, layer, filling);
  }
}
