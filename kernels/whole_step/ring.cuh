// The ring of persistent_decode.cu: tiles of the vocabulary on their way through shared memory, where it takes the
// place of the layers' weights as soon as those have been read for the last time.

#pragma once

#include "whole_step/weights.cuh"

// Tiles of a thread block: every NUM_BLOCKS-th.
__device__ __forceinline__ int num_tiles_of(int vocab_size) {
  return ceil_div(ceil_div(vocab_size, RING_ROWS) - static_cast<int>(blockIdx.x), NUM_BLOCKS);
}
__device__ __forceinline__ int tile_row(int index) { return (blockIdx.x + index * NUM_BLOCKS) * RING_ROWS; }

// The place of tile `index` in the ring. The first ones are behind the slots.
__device__ __forceinline__ int tile_place(int index) { return (index + RING_IN_SLOTS) % RING; }

// By one thread: rows of the vocabulary, or a tile of the quantized head.
__device__ __forceinline__ void fill_tile(Shared& shared, const Element* head, int vocab_size, int index) {
  constexpr int ROW_BYTES = HIDDEN * sizeof(Element);
  const int place = tile_place(index), row = tile_row(index);
  const uint32 barrier = shared_address(&shared.tile_filled[place]);
  const uint32 bytes = min(TILE_ROWS, vocab_size - row) * ROW_BYTES;
  expect_bytes(barrier, bytes);
  copy_bulk(shared.ring[place], head + static_cast<int64>(row) * HIDDEN, bytes, barrier);
}
#if SCREENED
__device__ __forceinline__ void fill_tile(Shared& shared, const QuantizedTile* quantized, int, int index) {
  const int place = tile_place(index);
  const uint32 barrier = shared_address(&shared.tile_filled[place]);
  expect_bytes(barrier, TILE_BYTES);
  copy_bulk(&shared.quantized[place], quantized + tile_row(index) / QUANTIZED_ROWS, TILE_BYTES, barrier);
}
#endif

// The work of the warp that copies, after `fill_slots`; a thread of it is enough. `source`: as `fill_tile` has it.
template <typename Source>
__device__ __forceinline__ void fill_ring(Shared& shared, const Source* source, int vocab_size, int num_layers) {
  if (threadIdx.x % WARP_SIZE > 0) return;
  const bool adds = stream_unit() >= 0, waits = IS_CLUSTERED || makes_qkv();
  const uint32 last = (num_layers - 1) % 2;  // parity of the last layer
  const int num_tiles = num_tiles_of(vocab_size);
#pragma unroll 1
  for (int i = 0; i < num_tiles; i++) {
    const int place = i - EARLY_TILES;
    if (place == 0 && waits) wait(shared_address(&shared.into_read[0]), last);
    if (place == RING_IN_FIRST) wait(shared_address(&shared.into_read[1]), last);
    if (place == RING_IN_INTO && adds) {
      wait(shared_address(&shared.back_read[0]), last);
      wait(shared_address(&shared.back_read[1]), last);
    }
    if (i >= RING) wait(shared_address(&shared.tile_read[tile_place(i)]), (i / RING + 1) % 2);
    fill_tile(shared, source, vocab_size, i);
  }
}
