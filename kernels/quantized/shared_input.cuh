// The input of one or two tokens in shared memory, for units that are made in pairs: all lanes of a row read the
// same of it. Included by streamed_input.cuh.

#pragma once

constexpr int SUM_CHAINS = 4;  // that do not wait for each other: nothing is multiplied before they are there

// Sums of a stage's parts, to [PARTS][ROOM]; `piece_of(s)` is a lane's piece of token g, in the order of the
// weights.
template <typename PieceOf>
__device__ __forceinline__ void sum_stage(InputSums (*sums)[ROOM], const StreamPlace& place, PieceOf piece_of) {
  constexpr uint32 ONES = Pairs<Element>::ONES;
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    float chains[SUM_CHAINS][2][4] = {};  // of x and z in row g of `mma`, of y and w in row g + 8
#pragma unroll
    for (int i = 0; i < PART_STEPS; i++) {
      const uint4 piece = piece_of(part * PART_STEPS + i);
      const uint32 apart[4] = {ONES, 0, 0, ONES}, xy[2] = {piece.x, piece.y}, zw[2] = {piece.z, piece.w};
      mma_16x8x16<Element>(chains[i % SUM_CHAINS][0], apart, xy);
      mma_16x8x16<Element>(chains[i % SUM_CHAINS][1], apart, zw);
    }
    float both[4] = {};
#pragma unroll
    for (int i = 0; i < SUM_CHAINS; i++) {
#pragma unroll
      for (int e = 0; e < 4; e++) both[e] += chains[i][0][e] + chains[i][1][e];
    }
    if (place.g != 0) continue;  // all rows are alike
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (2 * place.q + i < ROOM) sums[part][2 * place.q + i] = InputSums(both[i], both[2 + i]);
    }
  }
}

// Of which a warp holds all that it multiplies. Columns of `mma` for tokens that there is no room for have the last
// one's again. What rows of one stage take has room in registers: shared memory is busy enough with weights.
struct StreamInput {
  static constexpr bool IS_HELD = ROW_STAGES == 1;

  const uint4* pieces;  // the lane's of all steps, four apart
  uint4 held[IS_HELD ? STEPS : 1];

  __device__ __forceinline__ void load(StreamShared& shared, const StreamPlace& place) {
    pieces = shared.tokens[min(place.g, SHARED_TOKENS - 1)] + place.warp * STEPS * 4 + place.q;
    if (IS_HELD) {
#pragma unroll
      for (int s = 0; s < STEPS; s++) held[s] = pieces[s * 4];
    }
    if (!SUMS_INPUT) return;
#pragma unroll 1
    for (int i = 0; i < ROW_STAGES; i++) {
      sum_stage(shared.input_sums[place.warp] + i * PARTS, place, [&](int s) { return piece(i, s); });
    }
    __syncwarp();
  }
  __device__ __forceinline__ void begin_group() {}
  __device__ __forceinline__ void begin_stage() {}
  __device__ __forceinline__ uint4 piece(int stage, int s) const {
    return IS_HELD ? held[s] : pieces[(stage * STAGE_STEPS + s) * 4];
  }
  __device__ __forceinline__ void end_stage(int) {}
};
