// All weights of a step on their way through a ring in shared memory, as in streamed_ring.cuh, from the first
// layer's to the last one's: they depend on nothing, so that the memory is never waited for between two products.

#pragma once

#include "all_layers/layer_filling.cuh"
#include "common/bulk_copy.cuh"

// The work of the copying warp: slot after slot, 8 rows of a stage each time.
__device__ __forceinline__ void copy_weights(Shared& shared, const Share& share, int num_layers) {
  if (threadIdx.x % WARP_SIZE > 0) return;
  Filling filling;
#pragma unroll 1
  for (int i = 0; i < 4 * num_layers; i++) {
    const int product = i % 4, inner = inner_of_product(product);
    const int first = share.first(product), end = first + share.count(product);
    // Rows 0 to 3 of a unit follow each other, and 4 to 7, which are values where the former are gates.
    const int64 to_lower = static_cast<int64>(product == UP ? MIDDLE : UNIT / 2) * inner;
    const int unit_elements = (product == UP ? UNIT / 2 : UNIT) * inner;
    const Element* upper = shared.layers[i / 4].weights[product] + static_cast<int64>(first) * unit_elements;
    const bool pairs_units = is_short(inner);
    int left = inner;  // of the unit's row
#pragma unroll 1
    for (int unit = first; unit < end;) {
      filling.make_room(shared);
      const uint32 barrier = shared_address(&shared.filled[filling.at.stage]);
      const int features = pairs_units ? inner * min(SLOT_STAGES, end - unit) : min(left, SLOT_FEATURES);
      expect_bytes(barrier, UNIT * features * sizeof(Element));
#pragma unroll 1
      for (int stage = 0, rest = features; rest > 0; stage++) {
        const int count = min(pairs_units ? inner : STAGE_FEATURES, rest);
        Element* const to = shared.ring[filling.at.stage][stage];
#pragma unroll
        for (int r = 0; r < UNIT / 2; r++) {
          copy_bulk(to + r * ROW_STRIDE, upper + r * inner, count * sizeof(Element), barrier);
          copy_bulk(to + (r + UNIT / 2) * ROW_STRIDE, upper + to_lower + r * inner, count * sizeof(Element),
                    barrier);
        }
        rest -= count, left -= count, upper += count;
        if (left == 0) upper += unit_elements - inner, left = inner, unit++;
      }
      filling.advance();
    }
  }
}
