// The few tokens' input of a product whose weights stream: which lane holds what of it. It stays in registers where
// it fits; for weights of few bits one or two tokens' lie in shared memory, so that registers and shared memory are
// left for the next kernel's thread blocks. Once it is there it is brought into the order of the weights, and where
// groups of those have minimums, its sum over each group is made, which is what a minimum is multiplied by.

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

// Two neighbouring pieces of a lane's run are half of what the memory gives at a time, so a lane loads one of its
// own and one of its neighbour's, beside it, and they change them afterwards.
constexpr bool CROSSED = RUN_PIECES > 1;

// Where a lane's piece of a step is loaded from, from its own one's place on.
__device__ __forceinline__ int crossing(const StreamPlace& place, int s) {
  if (!CROSSED || place.q % 2 == s % 2) return 0;
  return s % 2 == 0 ? PIECE - LANE_RUN : LANE_RUN - PIECE;
}

// With the lane's neighbour: the odd lane's even word against the even lane's odd one.
__device__ __forceinline__ void exchange(uint32& even, uint32& odd, bool is_odd) {
  const uint32 got = __shfl_xor_sync(FULL_WARP, is_odd ? even : odd, 1);
  even = is_odd ? got : even;
  odd = is_odd ? odd : got;
}

// All lanes' pieces of a stage, loaded that way, into their places.
__device__ __forceinline__ void uncross(uint4* pieces, const StreamPlace& place) {
  if (!CROSSED) return;
  const bool is_odd = place.q % 2 != 0;
#pragma unroll
  for (int s = 0; s + 1 < STAGE_STEPS; s += 2) {
    exchange(pieces[s].x, pieces[s + 1].x, is_odd);
    exchange(pieces[s].y, pieces[s + 1].y, is_odd);
    exchange(pieces[s].z, pieces[s + 1].z, is_odd);
    exchange(pieces[s].w, pieces[s + 1].w, is_odd);
  }
}

constexpr bool SUMS_INPUT = FEW_BITS && (MINIMUMS || Raw::SHIFTED);

// Sums of a stage's parts, to [PARTS][ROOM]; `piece_of(s)` is a lane's piece of token g, in the order of the
// weights.
template <typename PieceOf>
__device__ __forceinline__ void sum_stage(InputSums (*sums)[ROOM], const StreamPlace& place, PieceOf piece_of) {
  if (!SUMS_INPUT) return;
  constexpr uint32 ONES = Pairs<Element>::ONES;
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    float both[2][4] = {};  // of x and z in row g of `mma`, of y and w in row g + 8
#pragma unroll
    for (int i = 0; i < PART_STEPS; i++) {
      const uint4 piece = piece_of(part * PART_STEPS + i);
      const uint32 apart[4] = {ONES, 0, 0, ONES}, xy[2] = {piece.x, piece.y}, zw[2] = {piece.z, piece.w};
      mma_16x8x16<Element>(both[0], apart, xy);
      mma_16x8x16<Element>(both[1], apart, zw);
    }
    if (place.g != 0) continue;  // all rows are alike
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (2 * place.q + i >= ROOM) continue;
      sums[part][2 * place.q + i] = InputSums(both[0][i] + both[1][i], both[0][2 + i] + both[1][2 + i]);
    }
  }
  __syncwarp();
}

// A stage of a lane's pieces, in the order of the weights, and their sums.
__device__ __forceinline__ void prepare_stage(uint4* pieces, InputSums (*sums)[ROOM], const StreamPlace& place) {
#pragma unroll
  for (int s = 0; s < STAGE_STEPS; s++) pieces[s] = in_order_of_weights(pieces[s]);
  sum_stage(sums, place, [&](int s) { return pieces[s]; });
}

// Input [num_tokens, IN_FEATURES] of which a lane holds all that it multiplies.
struct ResidentInput {
  uint4 pieces[STEPS];

  __device__ __forceinline__ void load(const StreamPlace& place, const Element* input, int num_tokens) {
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      const int inner = place.first + place.offset(s) + crossing(place, s);
      pieces[s] = input_piece(input, place.g, num_tokens, inner);
    }
#pragma unroll
    for (int i = 0; i < ROW_STAGES; i++) uncross(pieces + i * STAGE_STEPS, place);
  }
  // When all of it is there.
  __device__ __forceinline__ void prepare(StreamShared& shared, const StreamPlace& place) {
#if WEIGHT_KIND != WHOLE_WEIGHTS
#pragma unroll
    for (int i = 0; i < ROW_STAGES; i++) {
      prepare_stage(pieces + i * STAGE_STEPS, shared.input_sums[place.warp] + i * PARTS, place);
    }
#endif
  }
  __device__ __forceinline__ void begin_group() {}
  __device__ __forceinline__ void begin_stage(StreamShared&, const StreamPlace&) {}
  __device__ __forceinline__ uint4 piece(int stage, int s) const { return pieces[stage * STAGE_STEPS + s]; }
  static __device__ __forceinline__ int part_place(int stage, int part) { return stage * PARTS + part; }
  __device__ __forceinline__ void end_stage(int) {}
};

// The same of which a lane holds what the next LOOKAHEAD stages multiply.
struct PassingInput {
  uint4 pieces[LOOKAHEAD][STAGE_STEPS];
  const Element* input;
  int token, num_tokens, first, beside[2];  // of even and odd steps

  __device__ __forceinline__ void load(const StreamPlace& place, const Element* from, int tokens) {
    input = from;
    token = place.g;
    num_tokens = tokens;
    first = place.first;
    beside[0] = crossing(place, 0), beside[1] = crossing(place, 1);
  }
  __device__ __forceinline__ void begin_group() {
#pragma unroll
    for (int i = 0; i < LOOKAHEAD; i++) fetch(i, i);
  }
  __device__ __forceinline__ void prepare(StreamShared&, const StreamPlace&) {}
  __device__ __forceinline__ void begin_stage(StreamShared& shared, const StreamPlace& place) {
#if WEIGHT_KIND != WHOLE_WEIGHTS
    __syncwarp();  // all have read the sums of the stage before
    uncross(pieces[0], place);
    prepare_stage(pieces[0], shared.input_sums[place.warp], place);
#endif
  }
  __device__ __forceinline__ uint4 piece(int, int s) const { return pieces[0][s]; }
  static __device__ __forceinline__ int part_place(int, int part) { return part; }
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
      const int inner = first + StreamPlace::offset(stage * STAGE_STEPS + s) + beside[s % 2];
      pieces[place][s] = input_piece(input, token, num_tokens, inner);
    }
  }
};

#if SHARED_TOKENS
// The same of which a warp holds all that it multiplies, in shared memory: registers are left for other kernels'
// thread blocks. Columns of `mma` for tokens that there is no room for have the last one's again.
struct SharedInput {
  const uint4* pieces;  // the lane's of all steps, four apart

  __device__ __forceinline__ void load(StreamShared& shared, const StreamPlace& place) {
    pieces = shared.tokens[min(place.g, SHARED_TOKENS - 1)] + place.warp * STEPS * 4 + place.q;
  }
  // When all of it is there.
  __device__ __forceinline__ void prepare(StreamShared& shared, const StreamPlace& place) {
#pragma unroll 1
    for (int i = 0; i < ROW_STAGES; i++) {
      sum_stage(shared.input_sums[place.warp] + i * PARTS, place, [&](int s) { return piece(i, s); });
    }
  }
  __device__ __forceinline__ void begin_group() {}
  __device__ __forceinline__ void begin_stage(StreamShared&, const StreamPlace&) {}
  __device__ __forceinline__ uint4 piece(int stage, int s) const { return pieces[(stage * STAGE_STEPS + s) * 4]; }
  static __device__ __forceinline__ int part_place(int stage, int part) { return stage * PARTS + part; }
  __device__ __forceinline__ void end_stage(int) {}
};
using StreamInput = SharedInput;
#else
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
