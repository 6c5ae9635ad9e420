// output = residual + activation(weight * input + bias) for some dozens of tokens: the linear layers of a decode
// step between those of a few tokens (small_batch_linear.cu) and those of warpgroup_linear.cu. PAIRED rows as in
// activation.cuh.
//
// Thread blocks of a cluster share the inner dimension. Each has 64 rows of the weight for its part of it, and all
// tokens, which its warps read from shared memory; the sums meet through distributed shared memory. The weights go
// straight into registers, in an order of the inner dimension that makes them operands of `mma` as they are. They
// do not depend on the kernel before, so they are under way before this one waits for it (programmatic dependent
// launch).

#include "activation.cuh"
#include "async_copy.cuh"
#include "cluster.cuh"
#include "dependent_launch.cuh"
#include "row_pieces.cuh"

#ifndef PARTS
#define PARTS 1  // warps of the same rows, which share the inner elements of the thread block
#endif

constexpr int ROW_WARPS = 4;               // warps of different rows
constexpr int TILE_ROWS = 16 * ROW_WARPS;  // of the weight
constexpr int OUT_ROWS = PAIRED ? TILE_ROWS / 2 : TILE_ROWS;
constexpr int TOKENS = 8 * TOKEN_TILES;       // of a thread block
constexpr int STEP = 4 * PIECE;               // inner elements that the lanes of a row hold at a time
constexpr int SLICE = IN_FEATURES / CLUSTER;  // inner elements of a thread block
constexpr int SLICE_STEPS = SLICE / STEP;
static_assert(IN_FEATURES % (CLUSTER * STEP) == 0, "every thread block gets whole steps");

static_assert(SLICE_STEPS % PARTS == 0, "every warp gets whole steps");
constexpr int NUM_THREADS = ROW_WARPS * PARTS * WARP_SIZE;
constexpr int STEPS = SLICE_STEPS / PARTS;  // of a warp

__host__ __device__ constexpr int largest_part(int whole, int most) {
  return whole % most == 0 ? most : largest_part(whole, most - 1);
}
constexpr int AHEAD = largest_part(STEPS, STEPS < 8 ? STEPS : 8);  // steps whose weights are in registers

// Lanes that read 16 bytes at a time, four of a row and the rows below, fall into different banks.
constexpr int TOKEN_STRIDE = SLICE + (SLICE_STEPS % 2 == 0 ? STEP : 0);  // elements between tokens
constexpr int SUM_STRIDE = TILE_ROWS + 4;                                // floats between tokens

struct Shared {
  Element tokens[TOKENS * TOKEN_STRIDE];
  float sums[PARTS][TOKENS * SUM_STRIDE];
};

__device__ __forceinline__ void add_from(float4& sum, const float* own, int rank) {
#if CLUSTER > 1
  float4 part;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
               : "r"(address_in(own, rank))
               : "memory");
#else
  const float4 part = *reinterpret_cast<const float4*>(own);
#endif
  sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
}

// The sums of four neighbouring rows over the whole inner dimension; `place` is in `sums`.
__device__ __forceinline__ float4 whole_sum(const Shared& shared, int place) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int rank = 0; rank < CLUSTER; rank++) {
#pragma unroll
    for (int part = 0; part < PARTS; part++) add_from(sum, shared.sums[part] + place, rank);
  }
  return sum;
}

// Grid: (CLUSTER, out_features / OUT_ROWS, ceil(num_tokens / TOKENS)), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS)
    cluster_linear(Element* output,                     // [num_tokens, out_features]; may be the residual
                   const Element* __restrict__ weight,  // [out_features, IN_FEATURES], twice the rows if PAIRED
                   const Element* __restrict__ bias,    // [out_features], or null; not with PAIRED
                   const Element* input,                // [num_tokens, IN_FEATURES]
                   const Element* residual,             // [num_tokens, out_features], or null
                   int num_tokens, int out_features) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  let_next_kernel_start();
  const int lane = threadIdx.x % WARP_SIZE, g = lane / 4, q = lane % 4;
  const int warp = threadIdx.x / WARP_SIZE % ROW_WARPS, part = threadIdx.x / WARP_SIZE / ROW_WARPS;
  const int rank = blockIdx.x, first_row = blockIdx.y * OUT_ROWS, first_token = blockIdx.z * TOKENS;
  const int my_tokens = min(TOKENS, num_tokens - first_token);
  const Element* row = weight + static_cast<int64>(first_row + (PAIRED ? 8 : 16) * warp + g) * IN_FEATURES +
                       rank * SLICE + part * STEPS * STEP + q * PIECE;
  const Element* row_below = row + static_cast<int64>(PAIRED ? out_features : 8) * IN_FEATURES;
  uint4 weights[AHEAD][2];
  const auto fetch = [&](int from) {
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      weights[s][0] = load_in_order(row + (from + s) * STEP);
      weights[s][1] = load_in_order(row_below + (from + s) * STEP);
    }
  };
  fetch(0);

  // Each thread finishes four neighbouring rows of some tokens; which rows is the same for all of them.
  constexpr int PIECES = OUT_ROWS / 4;
  constexpr int RESULTS = ceil_div(TOKENS * PIECES, CLUSTER * NUM_THREADS);
  constexpr int TOKENS_APART = CLUSTER * NUM_THREADS / PIECES;
  const int piece = threadIdx.x % PIECES, my_first = (rank * NUM_THREADS + threadIdx.x) / PIECES;
  float shift[4] = {};
  if (bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; i++) shift[i] = to_float(bias[first_row + 4 * piece + i]);
  }

  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < TOKENS * (SLICE / PIECE); i += NUM_THREADS) {
    const int token = i / (SLICE / PIECE), at = i % (SLICE / PIECE) * PIECE;
    const Element* from = input + static_cast<int64>(first_token + token) * IN_FEATURES + rank * SLICE + at;
    copy_16_async(shared.tokens + token * TOKEN_STRIDE + at, token < my_tokens ? from : input, token < my_tokens);
  }
  commit_copies();
  const auto place_of = [&](int token) {
    return static_cast<int64>(first_token + token) * out_features + first_row + 4 * piece;
  };
  uint2 before[RESULTS] = {};
  if (residual != nullptr) {
#pragma unroll
    for (int j = 0; j < RESULTS; j++) {
      const int token = my_first + j * TOKENS_APART;
      if (token < my_tokens) before[j] = __ldcg(reinterpret_cast<const uint2*>(residual + place_of(token)));
    }
  }
  wait_copies<0>();
  __syncthreads();

  const Element* my_tokens_at = shared.tokens + g * TOKEN_STRIDE + part * STEPS * STEP + q * PIECE;
  float sums[TOKEN_TILES][4] = {};
#pragma unroll 1
  for (int from = 0; from < STEPS; from += AHEAD) {
    if (from > 0) fetch(from);
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
      uint4 tokens[TOKEN_TILES];
#pragma unroll
      for (int t = 0; t < TOKEN_TILES; t++) {
        tokens[t] = load_16(my_tokens_at + 8 * t * TOKEN_STRIDE + (from + s) * STEP);
      }
      const uint4 a = weights[s][0], b = weights[s][1];
      const uint32 low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
      // Sums of different tokens by turns: a product that adds to the sums of the one before waits for it.
#pragma unroll
      for (int t = 0; t < TOKEN_TILES; t++) mma_16x8x16<Element>(sums[t], low, {tokens[t].x, tokens[t].y});
#pragma unroll
      for (int t = 0; t < TOKEN_TILES; t++) mma_16x8x16<Element>(sums[t], high, {tokens[t].z, tokens[t].w});
    }
  }
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      shared.sums[part][(8 * t + 2 * q + i % 2) * SUM_STRIDE + 16 * warp + g + i / 2 * 8] = sums[t][i];
    }
  }
  sync_cluster();

#pragma unroll
  for (int j = 0; j < RESULTS; j++) {
    const int token = my_first + j * TOKENS_APART;
    if (token >= my_tokens) break;
    const int of_token = token * SUM_STRIDE;
    float values[4];
#if PAIRED
    const int gates = 16 * (piece / 2) + 4 * (piece % 2);  // a warp's values lie behind its gates
    const float4 gate = whole_sum(shared, of_token + gates), value = whole_sum(shared, of_token + gates + 8);
    values[0] = activate(rounded(gate.x)) * rounded(value.x);
    values[1] = activate(rounded(gate.y)) * rounded(value.y);
    values[2] = activate(rounded(gate.z)) * rounded(value.z);
    values[3] = activate(rounded(gate.w)) * rounded(value.w);
#else
    const float4 sum = whole_sum(shared, of_token + 4 * piece);
    values[0] = activate(sum.x + shift[0]);
    values[1] = activate(sum.y + shift[1]);
    values[2] = activate(sum.z + shift[2]);
    values[3] = activate(sum.w + shift[3]);
#endif
    if (residual != nullptr) {
      const Element* added = reinterpret_cast<const Element*>(&before[j]);
#pragma unroll
      for (int i = 0; i < 4; i++) values[i] = rounded(values[i]) + to_float(added[i]);
    }
    *reinterpret_cast<uint2*>(output + place_of(token)) =
        make_uint2(pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3]));
  }
  sync_cluster();  // nobody leaves while others read its sums
}
