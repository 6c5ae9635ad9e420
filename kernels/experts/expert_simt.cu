// What expert_linear.cu does, on CUDA cores and for rows of any length: float32, and what tensor cores do not
// multiply. A warp has a row of an expert's weights, or with PAIRED a gate and its value, and multiplies it by all
// pairs of a tile.

#include "experts/expert_tile.cuh"
#include "experts/gate.cuh"

constexpr int NUM_WARPS = 8;
constexpr int TILE_ROWS = 8;

// Grid: (num_tiles, ceil(out_features / NUM_WARPS)), NUM_WARPS * 32 threads.
extern "C" __global__ void __launch_bounds__(NUM_WARPS* WARP_SIZE)
    expert_simt(Element* __restrict__ output,        // [num_pairs, out_features]
                const Element* __restrict__ weight,  // [num_experts, out_features, in_features], PAIRED: twice the
                                                     // rows, gates and then values
                const Element* __restrict__ bias,    // [num_experts, rows of a weight], or null
                const Element* input,                // [num_pairs / pairs_per_row, in_features]
                const int* order,                    // [num_pairs]
                const int4* tiles,                   // [num_tiles], none with more than TILE_ROWS pairs
                int in_features, int out_features, int pairs_per_row, int tiles_are_known, float sharpness,
                float limit) {
  const Gate gate = {sharpness, limit};
  wait_for_tiles(tiles_are_known);
  const ExpertTile tile(__ldcg(tiles + blockIdx.x));
  const int lane = threadIdx.x % WARP_SIZE, column = blockIdx.y * NUM_WARPS + threadIdx.x / WARP_SIZE;
  if (tile.count == 0 || column >= out_features) return;
  const int num_rows = PAIRED ? 2 * out_features : out_features;  // of an expert's weights
  const Element* row = tile.weights(weight, num_rows, in_features) + static_cast<int64>(column) * in_features;
  const Element* row_below = row + static_cast<int64>(out_features) * in_features;
  int pairs[TILE_ROWS];
  const Element* rows[TILE_ROWS];
  float sums[TILE_ROWS] = {}, sums_below[TILE_ROWS] = {};
#pragma unroll
  for (int j = 0; j < TILE_ROWS; j++) {
    pairs[j] = __ldcg(order + tile.first + (j < tile.count ? j : 0));
    rows[j] = input + static_cast<int64>(pairs[j] / pairs_per_row) * in_features;
  }
  wait_for_previous_kernel();
  for (int k = lane; k < in_features; k += WARP_SIZE) {
    const float factor = to_float(row[k]), factor_below = PAIRED ? to_float(row_below[k]) : 0.0f;
#pragma unroll
    for (int j = 0; j < TILE_ROWS; j++) {
      if (j >= tile.count) break;
      const float value = to_float(__ldcg(rows[j] + k));
      sums[j] += factor * value;
      if (PAIRED) sums_below[j] += factor_below * value;
    }
  }
  const int64 at = static_cast<int64>(tile.expert) * num_rows + column;
#pragma unroll
  for (int j = 0; j < TILE_ROWS; j++) {
    if (j >= tile.count) break;
    float value = with_bias(warp_sum(sums[j]), bias, at);
    if (PAIRED) value = gate(value, with_bias(warp_sum(sums_below[j]), bias, at + out_features));
    if (lane == 0) output[static_cast<int64>(pairs[j]) * out_features + column] = from_float<Element>(value);
  }
}
