// The few tokens' input of a product whose weights stream: which lane holds what of it. It stays in registers where
// it fits.

#pragma once

#include "products/streamed_ring.cuh"

constexpr int LOOKAHEAD = 3;  // stages of input that are under way, where it does not stay in registers

// Where a lane stands: which pieces of the inner dimension it holds.
struct StreamPlace {
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  const int g = lane / 4, q = lane % 4;  // as in mma.cuh
  const int first = warp * STAGE_SEGMENT + q * PIECE;

  static __device__ __forceinline__ int offset(int step) {
    return step / STAGE_STEPS * STAGE_FEATURES + step % STAGE_STEPS * STEP;
  }
  // Whether a piece of the row is there; only those of a row's last stage may not be.
  __device__ __forceinline__ bool exists(int stage, int s) const {
    if (SHARES_OUT || stage + 1 < ROW_STAGES) return true;
    return first + s * STEP < LAST_FEATURES;
  }
  // Of the warps that multiply.
  __device__ __forceinline__ void sync_warps() const { sync_named(1, NUM_THREADS); }
};

// Sixteen bytes of a token's input, zeros where there is none; after the wait for the previous kernel.
__device__ __forceinline__ uint4 input_piece(const Element* input, int token, int num_tokens, int inner) {
  if (token >= num_tokens || (!SHARES_OUT && inner >= IN_FEATURES)) return make_uint4(0, 0, 0, 0);
  return load_fresh_16(input + static_cast<int64>(token) * IN_FEATURES + inner);
}

// Input [num_tokens, IN_FEATURES] of which a lane holds all that it multiplies.
struct ResidentInput {
  uint4 pieces[STEPS];

  __device__ __forceinline__ void load(const StreamPlace& place, const Element* input, int num_tokens) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      pieces[s] = input_piece(input, place.g, num_tokens, place.first + place.offset(s));
    }
  }
  __device__ __forceinline__ void begin_group() {}
  __device__ __forceinline__ uint4 piece(int stage, int s) const { return pieces[stage * STAGE_STEPS + s]; }
  __device__ __forceinline__ void end_stage(int) {}
};

// The same of which a lane holds what the next LOOKAHEAD stages multiply.
struct PassingInput {
  uint4 pieces[LOOKAHEAD][STAGE_STEPS];
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
  __device__ __forceinline__ uint4 piece(int, int s) const { return pieces[0][s]; }
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
