// The last product of persistent_decode.cu: tiles of 16 rows of the vocabulary stream through a ring in shared
// memory, which takes the place of the layers' weights as soon as those have been read for the last time.

#pragma once

#include "persistent_choice.cuh"
#include "persistent_products.cuh"

// Tiles of a thread block: every NUM_BLOCKS-th.
__device__ __forceinline__ int num_tiles_of(int vocab_size) {
  return ceil_div(ceil_div(vocab_size, TILE_ROWS) - static_cast<int>(blockIdx.x), NUM_BLOCKS);
}
__device__ __forceinline__ int tile_row(int index) { return (blockIdx.x + index * NUM_BLOCKS) * TILE_ROWS; }

// The place of tile `index` in the ring. The first ones are behind the slots.
__device__ __forceinline__ int tile_place(int index) { return (index + RING_IN_SLOTS) % RING; }

// By one thread.
__device__ __forceinline__ void fill_tile(Shared& shared, const Element* head, int vocab_size, int index) {
  constexpr int ROW_BYTES = HIDDEN * sizeof(Element);
  const int place = tile_place(index), row = tile_row(index);
  const uint32 barrier = shared_address(&shared.tile_filled[place]);
  const uint32 bytes = min(TILE_ROWS, vocab_size - row) * ROW_BYTES;
  expect_bytes(barrier, bytes);
  copy_bulk(shared.ring[place], head + static_cast<int64>(row) * HIDDEN, bytes, barrier);
}

// The work of the warp that copies, after `fill_slots`; a thread of it is enough.
__device__ __forceinline__ void fill_ring(Shared& shared, const Element* head, int vocab_size, int num_layers) {
  if (threadIdx.x % WARP_SIZE > 0) return;
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

// In a tile the same piece of two neighbouring rows is in the same banks. Hence lanes of odd rows take the two
// steps of a pair the other way round. What those are multiplied by, the other way round as well, is a column of
// its own in the product: 2t goes with even rows, 2t + 1 with odd ones.
__device__ __forceinline__ int turned_step(int step, int row) {
  const int other = step ^ (row & 1);
  return other < PART_STEPS ? other : step;
}

// The lane's operand of step `s`, out of what all warps have normalised.
__device__ __forceinline__ uint4 normalised_piece(const Shared& shared, const Place& place, int s) {
  const int step = place.warp % PARTS * PART_STEPS + turned_step(s, place.g);
  const int token = place.g / 2 % NUM_TOKENS;
  return load_16(shared.rows[step / NORM_STEPS] + token * ROW_STRIDE + step % NORM_STEPS * STEP + place.q * PIECE);
}

// A tile times the warp's part of the inputs, beside the sums of the other parts.
__device__ __forceinline__ void multiply_part(Shared& shared, const uint4 (&inputs)[PART_STEPS], int at,
                                              float (&to)[NUM_TOKENS][TILE_ROWS]) {
  constexpr int CHAINS = smaller(PART_STEPS, 4);  // of products that do not wait for each other
  const Place place;
  const Element* from = shared.ring[at][place.g] + place.warp % PARTS * PART + place.q * PIECE;
  uint4 above[PART_STEPS], below[PART_STEPS];
#pragma unroll
  for (int s = 0; s < PART_STEPS; s++) {
    above[s] = load_16(from + turned_step(s, place.g) * STEP);
    below[s] = load_16(from + turned_step(s, place.g) * STEP + UNIT * HIDDEN);
  }
  tell_read(shared.tile_read[at]);
  float sums[CHAINS][4] = {};
#pragma unroll
  for (int s = 0; s < PART_STEPS; s++) multiply_step(sums[s % CHAINS], above[s], below[s], inputs[s]);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) even += sums[c][2 * i], odd += sums[c][2 * i + 1];
    if (place.q < NUM_TOKENS) to[place.q][i * UNIT + place.g] = place.g % 2 ? odd : even;
  }
}

// The products of the rows that lie normalised in shared memory, rounded and written to `logits` `[num_tokens,
// vocab_size]`; the best of each token and warp in `shared.best`. Teams of warps take turns with tiles, and in a
// team warps with finishing them. Begins and ends with a barrier.
__device__ __forceinline__ void multiply_vocabulary(Shared& shared, Element* logits, int vocab_size) {
  static_assert(TILE_ROWS * NUM_TOKENS <= WARP_SIZE, "a warp has all results of a tile");
  constexpr int FIRST_BARRIER = 3;  // of the teams
  const Place place;
  const int num_tiles = num_tiles_of(vocab_size), team = place.warp / PARTS;
  const int row = place.lane % TILE_ROWS, token = place.lane / TILE_ROWS;
  sync_warps();
  uint4 inputs[PART_STEPS];
#pragma unroll
  for (int s = 0; s < PART_STEPS; s++) inputs[s] = normalised_piece(shared, place, s);
  uint64 best = 0;
#pragma unroll 1
  for (int i = team, turn = 0; i < num_tiles; i += TEAMS, turn++) {
    const int at = tile_place(i);
    auto& sums = shared.tile_sums[team][turn % 2];
    wait(shared_address(&shared.tile_filled[at]), i / RING % 2);
    multiply_part(shared, inputs, at, sums[place.warp % PARTS]);
    sync_named(FIRST_BARRIER + team, PARTS * WARP_SIZE);
    if (place.warp % PARTS != turn % PARTS || token >= NUM_TOKENS || tile_row(i) + row >= vocab_size) continue;
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; p++) sum += sums[p][token][row];
    const Element value = from_float<Element>(sum);
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
