// The last product of persistent_decode.cu: tiles of 16 rows of the vocabulary, which stream through the ring.

#pragma once

#include "whole_step/choice.cuh"
#include "whole_step/norm.cuh"
#include "whole_step/ring.cuh"

// The warps that share a tile.
__device__ __forceinline__ void sync_team(int team) {
  constexpr int FIRST_BARRIER = 3;
  sync_named(FIRST_BARRIER + team, PARTS * WARP_SIZE);
}

// In a tile the same piece of two neighbouring rows is in the same banks. Hence lanes of odd rows take the two
// steps of a pair the other way round: so many elements are added to those of the step.
__device__ __forceinline__ int turned(int step, bool odd) {
  const int turn = odd ? STEP : 0;
  return step % 2 ? -turn : step + 1 < PART_STEPS ? turn : 0;
}

// The columns of the product, g of mma.cuh: even and odd words (`multiply_unit`) of a token's inputs for even rows,
// the same for odd rows, whose steps are turned; then those of the next token.
__device__ __forceinline__ void load_columns(uint32 (&words)[PART_STEPS][2], const Shared& shared,
                                             const Place& place) {
  constexpr int SEGMENT = segment_of(HIDDEN);
  const int token = place.g / 4 % NUM_TOKENS;
#pragma unroll
  for (int s = 0; s < PART_STEPS; s++) {
    const int k = place.warp % PARTS * PART + s * STEP + turned(s, place.g / 2 % 2);
    const Element* from = shared.rows[k / SEGMENT] + token * ROW_STRIDE + k % SEGMENT;
    choose_words(words[s], load_16(from + place.q * PIECE), place.g % 2);
  }
}

// A tile times the warp's part of the inputs, beside the sums of the other parts.
__device__ __forceinline__ void multiply_part(Shared& shared, const uint32 (&words)[PART_STEPS][2], int at,
                                              const Place& place, float (&to)[NUM_TOKENS][TILE_ROWS]) {
  const Element* from = shared.ring[at][place.g] + place.warp % PARTS * PART + place.q * PIECE;
  uint4 weights[2][PART_STEPS];
#pragma unroll
  for (int i = 0; i < 2 * PART_STEPS; i++) {
    const int step = i / 2;
    weights[i % 2][step] = load_16(from + i % 2 * UNIT * HIDDEN + step * STEP + turned(step, place.g % 2));
  }
  tell_read(shared.tile_read[at]);
  float sums[2][2][4] = {};  // of both units two chains of products that do not wait for each other
#pragma unroll
  for (int i = 0; i < 2 * PART_STEPS; i++)
    multiply_unit(sums[i % 2][i / 2 % 2], weights[i % 2][i / 2], words[i / 2]);
  if (place.q / 2 < NUM_TOKENS && place.q % 2 == place.g % 2) {
#pragma unroll
    for (int u = 0; u < 2; u++)
      to[place.q / 2][u * UNIT + place.g] = sums[u][0][0] + sums[u][0][3] + (sums[u][1][0] + sums[u][1][3]);
  }
  __syncwarp();
}

// A lane's sum of all parts: of its row of a tile and its token; lanes beyond have somebody else's.
__device__ __forceinline__ float sum_of_parts(const float (&sums)[PARTS][NUM_TOKENS][TILE_ROWS],
                                              const Place& place) {
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < PARTS; p++)
    sum += sums[p][min(place.lane / TILE_ROWS, NUM_TOKENS - 1)][place.lane % TILE_ROWS];
  return sum;
}

// The logits of a tile, a lane each: the work of a warp, which meets again. Returns the lane's key, 0 for none.
__device__ __forceinline__ uint64 finish_tile(const float (&sums)[PARTS][NUM_TOKENS][TILE_ROWS], Element* logits,
                                              int vocab_size, int first_row) {
  const Place place;
  const int token = place.lane / TILE_ROWS, index = first_row + place.lane % TILE_ROWS;
  const bool mine = token < NUM_TOKENS && index < vocab_size;
  const Element value = from_float<Element>(sum_of_parts(sums, place));
  if (mine) logits[static_cast<int64>(token) * vocab_size + index] = value;
  __syncwarp();
  return mine ? argmax_key(to_float(value), index) : 0;
}

// The best of each token and warp to `shared.best`; lanes have keys of token lane / TILE_ROWS. Ends with a barrier.
__device__ __forceinline__ void share_best(Shared& shared, const Place& place, uint64 best) {
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    const uint64 highest = warp_best(place.lane / TILE_ROWS == t ? best : 0);
    if (place.lane == 0) shared.best[place.warp][t] = highest;
  }
  sync_warps();
}

// The products of the rows that lie normalised in shared memory, rounded and written to `logits` `[num_tokens,
// vocab_size]`; the best of each token and warp in `shared.best`. Teams of warps take turns with tiles, and in a
// team warps with finishing them. Begins and ends with a barrier.
__device__ __forceinline__ void multiply_vocabulary(Shared& shared, Element* logits, int vocab_size) {
  static_assert(TILE_ROWS * NUM_TOKENS <= WARP_SIZE, "a warp has all results of a tile, a product all columns");
  const Place place;
  const int num_tiles = num_tiles_of(vocab_size), team = place.warp / PARTS;
  sync_warps();
  uint32 words[PART_STEPS][2];
  load_columns(words, shared, place);
  uint64 best = 0;
#pragma unroll 1
  for (int i = team, turn = 0; i < num_tiles; i += TEAMS, turn++) {
    const int at = tile_place(i);
    auto& sums = shared.tile_sums[team][turn % 2];
    wait(shared_address(&shared.tile_filled[at]), i / RING % 2);
    multiply_part(shared, words, at, place, sums[place.warp % PARTS]);
    sync_team(team);
    if (place.warp % PARTS == turn % PARTS) best = max(best, finish_tile(sums, logits, vocab_size, tile_row(i)));
  }
  share_best(shared, place, best);
}
