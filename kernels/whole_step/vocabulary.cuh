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

// A product has columns for two tokens, a warp results of two tokens' rows of a tile. More of them take turns.
constexpr int TOKENS_OF_TURN = 2, TOKEN_TURNS = ceil_div(NUM_TOKENS, TOKENS_OF_TURN);
static_assert(TILE_ROWS * TOKENS_OF_TURN <= WARP_SIZE, "a warp has all results of a tile and two tokens");
using Columns = uint32[TOKEN_TURNS][PART_STEPS][2];

// The columns of the products, g of mma.cuh: even and odd words (`multiply_unit`) of a token's inputs for even
// rows, the same for odd rows, whose steps are turned; then those of the next token.
__device__ __forceinline__ void load_columns(Columns& words, const Shared& shared, const Place& place) {
  constexpr int SEGMENT = segment_of(HIDDEN);
#pragma unroll
  for (int i = 0; i < TOKEN_TURNS * PART_STEPS; i++) {
    const int turn = i / PART_STEPS, s = i % PART_STEPS;
    const int token = (turn * TOKENS_OF_TURN + place.g / 4) % NUM_TOKENS;
    const int k = place.warp % PARTS * PART + s * STEP + turned(s, place.g / 2 % 2);
    const Element* from = shared.rows[k / SEGMENT] + token * ROW_STRIDE + k % SEGMENT;
    choose_words(words[turn][s], load_16(from + place.q * PIECE), place.g % 2);
  }
}

// A tile times the warp's part of the inputs, beside the sums of the other parts.
__device__ __forceinline__ void multiply_part(Shared& shared, const Columns& words, int at, const Place& place,
                                              float (&to)[NUM_TOKENS][TILE_ROWS]) {
  const Element* from = shared.ring[at][place.g] + place.warp % PARTS * PART + place.q * PIECE;
  uint4 weights[2][PART_STEPS];
#pragma unroll
  for (int i = 0; i < 2 * PART_STEPS; i++) {
    const int step = i / 2;
    weights[i % 2][step] = load_16(from + i % 2 * UNIT * HIDDEN + step * STEP + turned(step, place.g % 2));
  }
  tell_read(shared.tile_read[at]);
#pragma unroll
  for (int turn = 0; turn < TOKEN_TURNS; turn++) {
    float sums[2][2][4] = {};  // of both units two chains of products that do not wait for each other
#pragma unroll
    for (int i = 0; i < 2 * PART_STEPS; i++)
      multiply_unit(sums[i % 2][i / 2 % 2], weights[i % 2][i / 2], words[turn][i / 2]);
    const int token = turn * TOKENS_OF_TURN + place.q / 2;
    if (token < NUM_TOKENS && place.q % 2 == place.g % 2) {
#pragma unroll
      for (int u = 0; u < 2; u++)
        to[token][u * UNIT + place.g] = sums[u][0][0] + sums[u][0][3] + (sums[u][1][0] + sums[u][1][3]);
    }
  }
  __syncwarp();
}

// A lane's token in a turn.
__device__ __forceinline__ int token_of_lane(const Place& place, int turn) {
  return turn * TOKENS_OF_TURN + place.lane / TILE_ROWS;
}

// A lane's sum of all parts: of its row of a tile and its token; lanes beyond have somebody else's.
__device__ __forceinline__ float sum_of_parts(const float (&sums)[PARTS][NUM_TOKENS][TILE_ROWS], const Place& place,
                                              int turn) {
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < PARTS; p++)
    sum += sums[p][min(token_of_lane(place, turn), NUM_TOKENS - 1)][place.lane % TILE_ROWS];
  return sum;
}

// The logits of a tile, a lane each: the work of a warp, which meets again. `best`: the lane's keys of its tokens.
__device__ __forceinline__ void finish_tile(const float (&sums)[PARTS][NUM_TOKENS][TILE_ROWS], Element* logits,
                                            int vocab_size, int first_row, uint64 (&best)[TOKEN_TURNS]) {
  const Place place;
#pragma unroll
  for (int turn = 0; turn < TOKEN_TURNS; turn++) {
    const int token = token_of_lane(place, turn), index = first_row + place.lane % TILE_ROWS;
    const bool mine = token < NUM_TOKENS && index < vocab_size;
    const Element value = from_float<Element>(sum_of_parts(sums, place, turn));
    if (mine) logits[static_cast<int64>(token) * vocab_size + index] = value;
    __syncwarp();
    best[turn] = max(best[turn], mine ? argmax_key(to_float(value), index) : 0);
  }
}

// The best of each token and warp to `shared.best`, of the keys that lanes have. Ends with a barrier.
__device__ __forceinline__ void share_best(Shared& shared, const Place& place, const uint64 (&best)[TOKEN_TURNS]) {
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    const int turn = t / TOKENS_OF_TURN;
    const uint64 highest = warp_best(token_of_lane(place, turn) == t ? best[turn] : 0);
    if (place.lane == 0) shared.best[place.warp][t] = highest;
  }
  sync_warps();
}

// The products of the rows that lie normalised in shared memory, rounded and written to `logits` `[num_tokens,
// vocab_size]`; the best of each token and warp in `shared.best`. Teams of warps take turns with tiles, and in a
// team warps with finishing them. Begins and ends with a barrier.
__device__ __forceinline__ void multiply_vocabulary(Shared& shared, Element* logits, int vocab_size) {
  const Place place;
  const int num_tiles = num_tiles_of(vocab_size), team = place.warp / PARTS;
  sync_warps();
  Columns words;
  load_columns(words, shared, place);
  uint64 best[TOKEN_TURNS] = {};
#pragma unroll 1
  for (int i = team, turn = 0; i < num_tiles; i += TEAMS, turn++) {
    const int at = tile_place(i);
    auto& sums = shared.tile_sums[team][turn % 2];
    wait(shared_address(&shared.tile_filled[at]), i / RING % 2);
    multiply_part(shared, words, at, place, sums[place.warp % PARTS]);
    sync_team(team);
    if (place.warp % PARTS == turn % PARTS) finish_tile(sums, logits, vocab_size, tile_row(i), best);
  }
  share_best(shared, place, best);
}
