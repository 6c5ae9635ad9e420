// The last product of persistent_decode.cu: tiles of 16 rows of the vocabulary stream through a ring in shared
// memory, which takes the place of the layers' weights as soon as those have been read for the last time.

#pragma once

#include "persistent_choice.cuh"
#include "persistent_products.cuh"

constexpr int TILE_ROWS = 2 * UNIT;

// Tiles of a thread block: every NUM_BLOCKS-th.
__device__ __forceinline__ int num_tiles_of(int vocab_size) {
  return ceil_div(ceil_div(vocab_size, TILE_ROWS) - static_cast<int>(blockIdx.x), NUM_BLOCKS);
}
__device__ __forceinline__ int tile_row(int index) { return (blockIdx.x + index * NUM_BLOCKS) * TILE_ROWS; }

// The place of tile `index` in the ring. The first ones are behind the slots.
__device__ __forceinline__ int tile_place(int index) { return (index + RING_IN_SLOTS) % RING; }

__device__ __forceinline__ void fill_tile(Shared& shared, const Element* head, int vocab_size, int index) {
  constexpr int ROW_BYTES = HIDDEN * sizeof(Element);
  const int lane = threadIdx.x % WARP_SIZE, place = tile_place(index);
  const uint32 barrier = shared_address(&shared.tile_filled[place]);
  const int row = tile_row(index), num_rows = min(TILE_ROWS, vocab_size - row);
  if (lane == 0) expect_bytes(barrier, num_rows * ROW_BYTES);
  __syncwarp();
  if (lane < num_rows) {
    copy_bulk(shared.ring[place][lane], head + static_cast<int64>(row + lane) * HIDDEN, ROW_BYTES, barrier);
  }
}

// The work of the warp that copies, after `fill_slots`.
__device__ __forceinline__ void fill_ring(Shared& shared, const Element* head, int vocab_size, int num_layers) {
  const bool attends = producer_index() < 0, adds = !attends && producer_index() < HIDDEN / UNIT;
  const uint32 last = (num_layers - 1) % 2;  // parity of the last layer
  const int num_tiles = num_tiles_of(vocab_size);
#pragma unroll 1
  for (int i = 0; i < num_tiles; i++) {
    const int place = i - EARLY_TILES;
    if (place == 0 && !attends) wait(shared_address(&shared.into_read[0]), last);
    if (place == RING_IN_FIRST) wait(shared_address(&shared.into_read[1]), last);
    if (place == RING_IN_INTO && adds) {
      wait(shared_address(&shared.back_read[0]), last);
      wait(shared_address(&shared.back_read[1]), last);
    }
    if (i >= RING) wait(shared_address(&shared.tile_read[tile_place(i)]), (i / RING + 1) % 2);
    fill_tile(shared, head, vocab_size, i);
  }
}

// The lane's words of step `s` of the rows that lie normalised in shared memory.
__device__ __forceinline__ void normalised_words(uint32 (&words)[2], const Shared& shared, const Place& place,
                                                 int s) {
  const Element* row = shared.rows[place.warp] + words_token(place) * ROW_STRIDE;
  choose_words(words, load_16(row + s * STEP + place.q * PIECE), has_odd_words(place));
}

// The products of the rows that lie normalised in shared memory, rounded and written to `logits` `[num_tokens,
// vocab_size]`; the best of each token and warp in `shared.best`. Warps take turns with finishing a tile. Ends in a
// barrier.
__device__ __forceinline__ void multiply_vocabulary(Shared& shared, Element* logits, int vocab_size) {
  static_assert(TILE_ROWS * NUM_TOKENS <= WARP_SIZE && TILE_ROWS <= RESULT_ROWS,
                "a warp has all results of a tile");
  const Place place;
  const int num_tiles = num_tiles_of(vocab_size);
  const int row = place.lane % TILE_ROWS, token = place.lane / TILE_ROWS;
  uint32 words[NORM_STEPS][2];
#pragma unroll
  for (int s = 0; s < NORM_STEPS; s++) normalised_words(words[s], shared, place, s);
  uint64 best = 0;
#pragma unroll 1
  for (int i = 0; i < num_tiles; i++) {
    const int at = tile_place(i);
    const Element* from = shared.ring[at][place.g] + place.warp * segment_of(HIDDEN) + place.q * PIECE;
    wait(shared_address(&shared.tile_filled[at]), i / RING % 2);
    uint4 above[NORM_STEPS], below[NORM_STEPS];
#pragma unroll
    for (int s = 0; s < NORM_STEPS; s++) {
      above[s] = load_16(from + s * STEP);
      below[s] = load_16(from + UNIT * HIDDEN_STRIDE + s * STEP);
    }
    tell_read(shared.tile_read[at]);
    float sums[2][4] = {};
#pragma unroll
    for (int s = 0; s < NORM_STEPS; s++) {
      multiply_unit(sums[0], above[s], words[s]);
      multiply_unit(sums[1], below[s], words[s]);
    }
    share_sums(shared.sums[i % 2], sums[0], place, 0);
    share_sums(shared.sums[i % 2], sums[1], place, 1);
    sync_warps();
    if (place.warp != i % NUM_WARPS || token >= NUM_TOKENS || tile_row(i) + row >= vocab_size) continue;
    const Element value = from_float<Element>(total(shared.sums[i % 2][token][row]));
    logits[static_cast<int64>(token) * vocab_size + tile_row(i) + row] = value;
    best = max(best, argmax_key(to_float(value), tile_row(i) + row));
  }
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    const uint64 highest = warp_best(token == t ? best : 0);
    if (place.lane == 0) shared.best[place.warp][t] = highest;
  }
  sync_warps();
}
