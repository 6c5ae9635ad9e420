// The product of each pair of a token and an expert with that expert's weights, where few pairs share an expert:
//
//   output[pair] = weight[expert of pair] * input[pair / pairs_per_row] + bias[expert of pair]
//
// PAIRED: a gate and its value become one number (gate.cuh).
//
// A thread block makes 16 rows of an expert's weights for all pairs of a tile, which is as many as 8 * TOKEN_TILES.
// Weights go from the stacked tensor into registers, each once a tile, as those of small_batch_product.cuh do;
// which rows of the input they meet is looked up while they are under way. Where the kernel before makes these
// rows, it need not have ended until then (programmatic dependent launch).

#include "experts/expert_tile.cuh"
#include "experts/gate.cuh"
#include "products/small_batch_product.cuh"

constexpr int OUT_ROWS = PAIRED ? TILE_ROWS / 2 : TILE_ROWS;  // of a thread block

// Grid: (num_tiles, out_features / OUT_ROWS), NUM_WARPS * 32 threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    expert_linear(Element* __restrict__ output,        // [num_pairs, out_features]
                  const Element* __restrict__ weight,  // [num_experts, out_features, IN_FEATURES], PAIRED: twice
                                                       // the rows, gates and then values
                  const Element* __restrict__ bias,    // [num_experts, rows of a weight], or null
                  const Element* input,                // [num_pairs / pairs_per_row, IN_FEATURES]
                  const int* order,                    // [num_pairs]
                  const int4* tiles,                   // [num_tiles]
                  int out_features, int pairs_per_row, int tiles_are_known, float sharpness, float limit) {
  __shared__ ProductShared shared;
  __shared__ int pairs[MAX_TOKENS];
  const Gate gate = {sharpness, limit};
  wait_for_tiles(tiles_are_known);
  const ExpertTile tile(__ldcg(tiles + blockIdx.x));
  if (tile.count == 0) return;
  WarpProduct product;
  const int num_rows = PAIRED ? 2 * out_features : out_features;  // of an expert's weights
  const int first_row = blockIdx.y * OUT_ROWS, below = PAIRED ? out_features : 8;
  const Element* row =
      tile.weights(weight, num_rows, IN_FEATURES) + static_cast<int64>(first_row + product.g) * IN_FEATURES;
  const Element* row_below = row + static_cast<int64>(below) * IN_FEATURES;
  product.fetch(row, row_below, 0);
  const Element* mine[TOKEN_TILES];
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
    const int token = 8 * t + product.g, pair = token < tile.count ? __ldcg(order + tile.first + token) : -1;
    mine[t] = pair < 0 ? nullptr : input + static_cast<int64>(pair / pairs_per_row) * IN_FEATURES + product.first;
    if (threadIdx.x < WARP_SIZE && product.q == 0) pairs[token] = pair;
  }
  wait_for_previous_kernel();
#pragma unroll 1
  for (int from = 0; from < STEPS; from += AHEAD) {
    if (from > 0) product.fetch(row, row_below, from);
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; t++) {
      uint4 pieces[AHEAD];
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        const bool wanted = mine[t] != nullptr && product.exists(from, s);
        pieces[s] = wanted ? load_fresh_16(mine[t] + (from + s) * STEP) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int s = 0; s < AHEAD; s++) {
        if (product.exists(from, s)) product.multiply(t, s, pieces[s]);
      }
    }
  }
  share_sums(product, shared);
  for (int i = threadIdx.x; i < OUT_ROWS * tile.count; i += NUM_THREADS) {
    const int token = i / OUT_ROWS, local = i % OUT_ROWS;
    const int64 at = static_cast<int64>(tile.expert) * num_rows + first_row + local;
    float value = with_bias(result(shared, local, token), bias, at);
    if (PAIRED) value = gate(value, with_bias(result(shared, local + 8, token), bias, at + out_features));
    output[static_cast<int64>(pairs[token]) * out_features + first_row + local] = from_float<Element>(value);
  }
}
