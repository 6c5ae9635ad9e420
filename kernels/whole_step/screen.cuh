// The vocabulary of a screened step of persistent_decode.cu: what every row's logit is at most, and what the best
// of the thread block's rows is at least, by the quantized head. Nothing here decides on a token: rows that may
// have the best logit are multiplied as ever afterwards (candidates.cuh).

#pragma once

#include "common/mma_integers.cuh"
#include "whole_step/digits.cuh"
#include "whole_step/vocabulary.cuh"

#if SCREENED

// What a lane has of a tile of the quantized head: its warp's part of the rows, and the constants of a row.
struct Screened {
  static constexpr int GROUPS = QUANTIZED_ROWS / 16;
  uint4 pieces[GROUPS][PART_STEPS];
  uint32 constants;

  // Of tile `index`, once it is there.
  __device__ __forceinline__ void take(Shared& shared, int index, const Place& place) {
    const int at = tile_place(index);
    wait(shared_address(&shared.tile_filled[at]), index / RING % 2);
#pragma unroll
    for (int i = 0; i < GROUPS * PART_STEPS; i++)
      pieces[i % GROUPS][i / GROUPS] =
          shared.quantized[at].pieces[i % GROUPS][place.warp % PARTS * PART_STEPS + i / GROUPS][place.lane];
    constants = shared.quantized[at].constants[place.lane];
    tell_read(shared.tile_read[at]);
  }

  // Times the rows' digits, of all tokens: beside the sums of the other parts.
  __device__ __forceinline__ void multiply(float (&to)[NUM_TOKENS][QUANTIZED_ROWS],
                                           const uint2 (&digits)[PART_STEPS], const Place& place) const {
    int sums[GROUPS][2][4] = {};  // two chains of products that do not wait for each other
#pragma unroll
    for (int i = 0; i < GROUPS * PART_STEPS; i++)
      mma_16x8x32(sums[i % GROUPS][i / GROUPS % 2], pieces[i % GROUPS][i / GROUPS], digits[i / GROUPS]);
    // A lane has two digits of rows g and g + 8, its neighbour the third.
    const bool odd = place.q % 2;
    const float of_first = odd ? 65536.0f : 1.0f, of_second = odd ? 0.0f : 256.0f;
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      float rows[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int first = sums[group][0][2 * i] + sums[group][1][2 * i];
        const int second = sums[group][0][2 * i + 1] + sums[group][1][2 * i + 1];
        rows[i] = static_cast<float>(first) * of_first + static_cast<float>(second) * of_second;
        rows[i] += __shfl_xor_sync(FULL_WARP, rows[i], 1);
      }
      if (place.q / 2 < NUM_TOKENS) to[place.q / 2][group * 16 + odd * UNIT + place.g] = odd ? rows[1] : rows[0];
    }
    __syncwarp();
  }
};

// What the logits of tile `index` are at most and the best one at least, a row for each lane: the work of a warp.
// Both are rounded, as logits are: of two numbers the larger one is not the smaller one then.
__device__ __forceinline__ void finish_screened(Shared& shared, const ScreenedSums<PARTS>& sums, uint32 constants,
                                                const float (&norms)[NUM_TOKENS], int index, int vocab_size) {
  const Place place;
  const bool mine = tile_row(index) + place.lane < vocab_size;
  const float scale = __uint_as_float(constants << 16), width = __uint_as_float(constants & 0xffff0000u);
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; p++) sum += sums[p][t][place.lane];
    const float logit = sum * scale, off = width * norms[t] + scale * DIGITS_OFF;
    const uint32 most = ordered_bits(to_float(from_float<Element>(logit + off)));
    const uint32 least = ordered_bits(to_float(from_float<Element>(logit - off)));
    shared.screening.highest[t][index * QUANTIZED_ROWS + place.lane] = mine ? most : 0;
    const uint32 reached = __reduce_max_sync(FULL_WARP, mine ? least : 0);
    if (place.lane == 0) atomicMax(&shared.screening.reached[t], reached);
  }
  __syncwarp();
}

// The products of the quantized head and the rows that lie in shared memory, as digits too. A barrier comes before
// the digits are read, and one at the end.
__device__ __forceinline__ void screen_vocabulary(Shared& shared, int vocab_size, float digit_scale) {
  const Place place;
  const int num_tiles = num_tiles_of(vocab_size), team = place.warp / PARTS;
  Screened screened;
  if (team < num_tiles) screened.take(shared, team, place);
  sync_warps();
  uint2 digits[PART_STEPS];
  load_digits(digits, shared, place);
  float norms[NUM_TOKENS];
#pragma unroll 1
  for (int i = team, turn = 0; i < num_tiles; i += TEAMS, turn++) {
    auto& sums = shared.screened[team][turn % 2];
    if (turn > 0) screened.take(shared, i, place);
    screened.multiply(sums[place.warp % PARTS], digits, place);
    if (turn == 0) norm_of_rows(norms, shared, digit_scale);
    sync_team(team);
    if (place.warp % PARTS == turn % PARTS) finish_screened(shared, sums, screened.constants, norms, i, vocab_size);
  }
  sync_warps();
}

#endif
