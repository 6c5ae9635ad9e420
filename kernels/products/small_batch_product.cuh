// A few tokens times a large matrix: what a decode step mostly is. The matrix is read once, at the speed of the
// memory, and everything else hides behind that.
//
// A thread block makes 16 rows of the result for all tokens. Its warps share the inner dimension; a lane holds
// 16-byte pieces of two rows, in an order of the inner dimension that makes them operands of `mma` as they are
// (weights are the 16-row operand, tokens the 8 columns). The weights do not depend on the kernel before: they are
// under way in registers before this one waits for it (programmatic dependent launch), and only then comes the
// input, normalised on the way in if asked. Partial sums of the warps meet in shared memory.

#pragma once

#include "products/product_shape.cuh"

constexpr int TILE_ROWS = 16;
constexpr int SEGMENT = IN_FEATURES / NUM_WARPS;  // inner elements of a warp
constexpr int STEPS = SEGMENT / STEP;
constexpr int AHEAD = STEPS < 8 ? STEPS : 8;  // steps whose weights are in registers at a time
constexpr int SUM_STRIDE = 20;                // floats between tokens in shared memory; no bank conflicts

static_assert(IN_FEATURES % (NUM_WARPS * STEP) == 0, "every warp gets whole steps");
static_assert(NORM == NO_NORM || STEPS <= 8, "a warp's part of the input stays in registers");

struct ProductShared {
  float sums[NUM_WARPS][MAX_TOKENS * SUM_STRIDE];
#if NORM
  float2 moments[NUM_WARPS][MAX_TOKENS];  // mean and sum of squared deviations of a warp's part
  uint4 scales[IN_FEATURES / PIECE], shifts[IN_FEATURES / PIECE];
#endif
};

// Where a lane stands: which pieces of the inner dimension it holds.
struct WarpPlace {
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  const int g = lane / 4, q = lane % 4;  // as in mma.cuh
  const int first = warp * SEGMENT + q * PIECE;
};

// One warp's part of the product.
struct WarpProduct : WarpPlace {
  uint4 weights[AHEAD][2];
  float sums[TOKEN_TILES][4] = {};

  // Whether step `from + s` is one of the warp's: the last round may have fewer than AHEAD.
  static __device__ __forceinline__ bool exists(int from, int s) { return STEPS % AHEAD == 0 || from + s < STEPS; }

  // Bring in the weights of steps `from` to `from + AHEAD - 1` of the rows that this lane holds.
  __device__ __forceinline__ void fetch(const Element* row, const Element* row_below, int from) {
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      if (!exists(from, s)) break;
      weights[s][0] = load_in_order(row + first + (from + s) * STEP);
      weights[s][1] = load_in_order(row_below + first + (from + s) * STEP);
    }
  }

  __device__ __forceinline__ void multiply(int tile, int s, uint4 input) {
    multiply_step(sums[tile], weights[s][0], weights[s][1], input);
  }
};

#if NORM
// Brings the norm's scales and shifts into shared memory; they do not depend on the kernel before.
__device__ __forceinline__ void fetch_norm(ProductShared& shared, const Element* norm_weight,
                                           const Element* norm_bias) {
  for (int i = threadIdx.x; i < IN_FEATURES / PIECE; i += NUM_THREADS) {
    shared.scales[i] = load_16(norm_weight + i * PIECE);
    shared.shifts[i] = norm_bias == nullptr ? make_uint4(0, 0, 0, 0) : load_16(norm_bias + i * PIECE);
  }
}

// `input` [num_tokens, IN_FEATURES] normalised over its features, piece by piece to `take(tile, step, piece)`:
// those of token 8 * tile + g that this lane multiplies. `fetch_norm` came before. Statistics are merged as in Chan
// et al. 1979.
template <typename Take>
__device__ __forceinline__ void normalise(const WarpPlace& place, ProductShared& shared, const Element* input,
                                          int num_tokens, float epsilon, Take take) {
  wait_for_previous_kernel();
  uint4 pieces[TOKEN_TILES][STEPS];
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
    const int token = 8 * t + place.g;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      pieces[t][s] = token < num_tokens
                         ? load_fresh_16(input + static_cast<int64>(token) * IN_FEATURES + place.first + s * STEP)
                         : make_uint4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
    float sum = 0.0f, squares = 0.0f, mean = 0.0f;
    float values[PIECE];
    if (NORM == LAYER_NORM) {
#pragma unroll
      for (int s = 0; s < STEPS; s++) {
        unpack(pieces[t][s], values);
#pragma unroll
        for (int i = 0; i < PIECE; i++) sum += values[i];
      }
      mean = warp_sum<2>(sum) / SEGMENT;
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      unpack(pieces[t][s], values);
#pragma unroll
      for (int i = 0; i < PIECE; i++) squares += (values[i] - mean) * (values[i] - mean);
    }
    squares = warp_sum<2>(squares);
    if (place.q == 0) shared.moments[place.warp][8 * t + place.g] = make_float2(mean, squares);
  }
  __syncthreads();
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) mean += shared.moments[w][8 * t + place.g].x / NUM_WARPS;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) {
      const float2 part = shared.moments[w][8 * t + place.g];
      squares += part.y + SEGMENT * (part.x - mean) * (part.x - mean);
    }
    const float factor = rsqrtf(squares / IN_FEATURES + epsilon);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      float values[PIECE], scale[PIECE], shift[PIECE];
      unpack(pieces[t][s], values);
      unpack(shared.scales[(place.first + s * STEP) / PIECE], scale);
      unpack(shared.shifts[(place.first + s * STEP) / PIECE], shift);
#pragma unroll
      for (int i = 0; i < PIECE; i++) {
        values[i] = scaled_by_norm<NORM>((values[i] - mean) * factor, scale[i], shift[i]);
      }
      take(t, s, pack(values));
    }
  }
}

#endif

// `input` [num_tokens, IN_FEATURES] as it is, times the weights, of which the first AHEAD steps are there; after
// the wait for the previous kernel.
__device__ __forceinline__ void multiply_plain(WarpProduct& product, const Element* row, const Element* row_below,
                                               const Element* input, int num_tokens) {
#pragma unroll 1
  for (int from = 0; from < STEPS; from += AHEAD) {
    if (from > 0) product.fetch(row, row_below, from);
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; t++) {
      const int token = 8 * t + product.g;
      const Element* mine = input + static_cast<int64>(token) * IN_FEATURES + product.first + from * STEP;
      uint4 pieces[AHEAD];
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        const bool wanted = token < num_tokens && product.exists(from, s);
        pieces[s] = wanted ? load_fresh_16(mine + s * STEP) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        if (product.exists(from, s)) product.multiply(t, s, pieces[s]);
      }
    }
  }
}

// Lays the warps' sums side by side; `result(shared, row, token)` reads them from then on.
__device__ __forceinline__ void share_sums(const WarpProduct& product, ProductShared& shared) {
  float* to = shared.sums[product.warp];
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int token = 8 * t + 2 * product.q + i % 2, row = product.g + i / 2 * 8;
      to[token * SUM_STRIDE + row] = product.sums[t][i];
    }
  }
  __syncthreads();
}

__device__ __forceinline__ float result(const ProductShared& shared, int row, int token) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) sum += shared.sums[w][token * SUM_STRIDE + row];
  return sum;
}
