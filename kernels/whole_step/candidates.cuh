// The end of the vocabulary of a screened step of persistent_decode.cu: exact logits of the rows whose logit may be
// the best one, to the bit those of a step that multiplies all rows.

#pragma once

#include "whole_step/screen.cuh"

#if SCREENED

// Before anything is screened or gathered; barriers come after it.
__device__ __forceinline__ void prepare_screening(Screening<TEAMS>& screening) {
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) screening.reached[t] = 0;
  screening.num_candidates[0] = screening.num_candidates[1] = 0;
#pragma unroll
  for (int team = 0; team < TEAMS; team++) init_barrier(shared_address(&screening.gathered[team]), 1);
  publish_barriers();
}

// Rows of the thread block whose logit may be the best of any token. Ends with a barrier.
__device__ __forceinline__ void list_candidates(Screening<TEAMS>& screening, int num_rows) {
#pragma unroll 1
  for (int row = Place().thread; row < num_rows; row += NUM_THREADS) {
    bool may_be = false;
#pragma unroll
    for (int t = 0; t < NUM_TOKENS; t++) may_be = may_be || screening.highest[t][row] >= screening.reached[t];
    if (may_be) screening.candidates[row % 2][atomicAdd(&screening.num_candidates[row % 2], 1)] = row;
  }
  sync_warps();
}

// The row of the vocabulary at place `place` of tile `index` of candidates; below 0: none. Even rows are at even
// places, since lanes of odd rows add in another order (`turned`).
__device__ __forceinline__ int candidate_at(const Screening<TEAMS>& screening, int index, int place) {
  const int odd = place % 2, number = index * (TILE_ROWS / 2) + place / 2;
  if (number >= screening.num_candidates[odd]) return -1;
  const int row = screening.candidates[odd][number];
  return tile_row(row / QUANTIZED_ROWS) + row % QUANTIZED_ROWS;
}

// Brings a tile of candidates to the team's place in the ring, which nobody reads any more: the work of a warp.
__device__ __forceinline__ void gather_candidates(Shared& shared, const Element* head, int index, int team) {
  constexpr int ROW_BYTES = HIDDEN * sizeof(Element);
  const Place place;
  const int row = place.lane < TILE_ROWS ? candidate_at(shared.screening, index, place.lane) : -1;
  const uint32 barrier = shared_address(&shared.screening.gathered[team]);
  const int num_rows = __popc(__ballot_sync(FULL_WARP, row >= 0));
  if (place.lane == 0) expect_bytes(barrier, num_rows * ROW_BYTES);
  __syncwarp();
  if (row >= 0)
    copy_bulk(shared.ring[team][place.lane], head + static_cast<int64>(row) * HIDDEN, ROW_BYTES, barrier);
}

// The keys of a tile of candidates, a lane each; 0 for none.
__device__ __forceinline__ uint64 finish_candidates(const Screening<TEAMS>& screening,
                                                    const float (&sums)[PARTS][NUM_TOKENS][TILE_ROWS], int index) {
  const Place place;
  const int row = candidate_at(screening, index, place.lane % TILE_ROWS);
  const Element value = from_float<Element>(sum_of_parts(sums, place, 0));
  return row >= 0 && place.lane / TILE_ROWS < NUM_TOKENS ? argmax_key(to_float(value), row) : 0;
}

// The logits of all candidates; the best of each token and warp in `shared.best`, as `multiply_vocabulary` does for
// all rows. Teams of warps take turns with tiles of them. Comes after a barrier and ends with one.
__device__ __forceinline__ void multiply_candidates(Shared& shared, const Element* head, int vocab_size) {
  static_assert(TEAMS <= RING, "a place in the ring for each team");
  static_assert(TOKEN_TURNS == 1, "digits and candidates are of two tokens at most");
  const Place place;
  const int team = place.warp / PARTS;
  list_candidates(shared.screening, num_tiles_of(vocab_size) * QUANTIZED_ROWS);
  const int most = max(shared.screening.num_candidates[0], shared.screening.num_candidates[1]);
  const int num_tiles = ceil_div(most, TILE_ROWS / 2);
  Columns words;
  uint64 best[TOKEN_TURNS] = {};
#pragma unroll 1
  for (int i = team, turn = 0; i < num_tiles; i += TEAMS, turn++) {
    auto& sums = shared.tile_sums[team][turn % 2];
    if (place.warp % PARTS == 0) gather_candidates(shared, head, i, team);
    if (turn == 0) load_columns(words, shared, place);
    wait(shared_address(&shared.screening.gathered[team]), turn % 2);
    multiply_part(shared, words, team, place, sums[place.warp % PARTS]);
    sync_team(team);
    if (place.warp % PARTS == turn % PARTS) {
      best[0] = max(best[0], finish_candidates(shared.screening, sums, i));
    }
  }
  share_best(shared, place, best);
}

#endif
