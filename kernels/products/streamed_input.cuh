// The few tokens' input of a product whose weights stream: which lane holds what of it. It stays in registers where
// it fits; of few tokens it may lie in shared memory (shared_input.cuh). Once it is there it is brought into the
// order of the weights, and where groups of those have minimums, its sum over each group is made, which is what a
// minimum is multiplied by.

#pragma once

#include "products/streamed_ring.cuh"

// Stages of input that are under way, where it does not stay in registers; those of few bits are longer.
constexpr int LOOKAHEAD = FEW_BITS ? 2 : 3;

// Where a lane stands: which pieces of the inner dimension it holds.
struct StreamPlace {
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  const int g = lane / 4, q = lane % 4;  // as in mma.cuh
  const int first = warp * STAGE_SEGMENT + q * LANE_RUN;

  // Of a step's piece behind the first one, in a stage and in all of them.
  static __device__ __forceinline__ int offset_in_stage(int s) {
    return s / RUN_PIECES * 4 * LANE_RUN + s % RUN_PIECES * PIECE;
  }
  static __device__ __forceinline__ int offset(int step) {
    return step / STAGE_STEPS * STAGE_FEATURES + offset_in_stage(step % STAGE_STEPS);
  }
  // Whether a piece of the row is there; only those of a row's last stage may not be.
  __device__ __forceinline__ bool exists(int stage, int s) const {
    if (SHARES_OUT || stage + 1 < ROW_STAGES) return true;
    return first + offset_in_stage(s) < LAST_FEATURES;
  }
  // Of the warps that multiply.
  __device__ __forceinline__ void sync_warps() const { sync_named(1, NUM_THREADS); }
};

// Sixteen bytes of a token's input, zeros where there is none; after the wait for the previous kernel.
__device__ __forceinline__ uint4 input_piece(const Element* input, int token, int num_tokens, int inner) {
  if (token >= num_tokens || (!SHARES_OUT && inner >= IN_FEATURES)) return make_uint4(0, 0, 0, 0);
  return load_fresh_16(input + static_cast<int64>(token) * IN_FEATURES + inner);
}

constexpr bool SUMS_INPUT = FEW_BITS && (MINIMUMS || Raw::SHIFTED);

#if SHARED_TOKENS
#include "quantized/shared_input.cuh"
#else
// A stage of a lane's pieces, in the order of the weights; `sums` of its parts over all lanes of token g.
__device__ __forceinline__ void prepare_stage(uint4* pieces, InputSums* sums) {
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) pieces[s] = in_order_of_weights(pieces[s]);
  if (!SUMS_INPUT) return;
  constexpr uint32 ONES[2] = {Pairs<Element>::ONES, Pairs<Element>::ONES};
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    float both[2][4] = {};  // of x and z in row g of `mma`, of y and w in row g + 8; steps take turns
#pragma unroll
    for (int i = 0; i < PART_STEPS; i++) {
      const uint4 piece = pieces[part * PART_STEPS + i];
      const uint32 words[4] = {piece.x, piece.y, piece.z, piece.w};
      mma_16x8x16<Element>(both[i % 2], words, ONES);
    }
    sums[part] = InputSums(both[0][0] + both[1][0], both[0][2] + both[1][2]);
  }
}

// Input [num_tokens, IN_FEATURES] of which a lane holds all that it multiplies.
struct ResidentInput {
  uint4 pieces[STEPS];
  InputSums sums[SUMS_INPUT ? ROW_STAGES * PARTS : 1];

  __device__ __forceinline__ void load(const StreamPlace& place, const Element* input, int num_tokens) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      pieces[s] = input_piece(input, place.g, num_tokens, place.first + place.offset(s));
    }
  }
  // When all of it is there.
  __device__ __forceinline__ void prepare() {
#pragma unroll
    for (int i = 0; i < ROW_STAGES; i++)
      prepare_stage(pieces + i * STAGE_STEPS, sums + (SUMS_INPUT ? i * PARTS : 0));
  }
  __device__ __forceinline__ void begin_group() {}
  __device__ __forceinline__ void begin_stage() {}
  __device__ __forceinline__ uint4 piece(int stage, int s) const { return pieces[stage * STAGE_STEPS + s]; }
  __device__ __forceinline__ InputSums sum(int stage, int part) const {
    return sums[SUMS_INPUT ? stage * PARTS + part : 0];
  }
  __device__ __forceinline__ void end_stage(int) {}
};

// The same of which a lane holds what the next LOOKAHEAD stages multiply.
struct PassingInput {
  uint4 pieces[LOOKAHEAD][STAGE_STEPS];
  InputSums sums[SUMS_INPUT ? PARTS : 1];
  const Element* input;
  int token, num_tokens, first;

  __device__ __forceinline__ void load(const StreamPlace& place, const Element* from, int tokens) {
    input = from;
    token = place.g;
    num_tokens = tokens;
    first = place.first;
  }
  __device__ __forceinline__ void begin_group() {
#pragma unroll
    for (int i = 0; i < LOOKAHEAD; i++) fetch(i, i);
  }
  __device__ __forceinline__ void prepare() {}
  __device__ __forceinline__ void begin_stage() { prepare_stage(pieces[0], sums); }
  __device__ __forceinline__ uint4 piece(int, int s) const { return pieces[0][s]; }
  __device__ __forceinline__ InputSums sum(int, int part) const { return sums[SUMS_INPUT ? part : 0]; }
  __device__ __forceinline__ void end_stage(int stage) {
#pragma unroll
    for (int i = 0; i + 1 < LOOKAHEAD; i++) {
#pragma unroll
      for (int s = 0; s < STAGE_STEPS; s++) pieces[i][s] = pieces[i + 1][s];
    }
    fetch(LOOKAHEAD - 1, stage + LOOKAHEAD);
  }
  __device__ __forceinline__ void fetch(int place, int stage) {
    if (stage >= ROW_STAGES) return;
#pragma unroll
    for (int s = 0; s < STAGE_STEPS; s++) {
      pieces[place][s] = input_piece(input, token, num_tokens, first + stage * STAGE_FEATURES + s * STEP);
    }
  }
};

template <bool IN_REGISTERS>
struct InputOf {
  using Type = ResidentInput;
};
template <>
struct InputOf<false> {
  using Type = PassingInput;
};
using StreamInput = InputOf<RESIDENT>::Type;
#endif
