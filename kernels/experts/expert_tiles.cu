// What expert_linear.cu does, where many pairs share an expert, as in prompts: TILE_ROWS pairs of an expert by 128
// rows of its weights, in chunks of 64 inner elements that are copied while others are multiplied.
// A pair's sums are made by the sixteen, first to last, whatever the size of its tile and whoever else is in it.
//
// A warp has 32 pairs and 64 rows of the weights. With PAIRED rows half of these are gates and half the values that
// go with them, so that both are in the same lane at the end. Pairs beyond the end of a tile are zeros, and so is
// what lies beyond the rows of the weights and the inner elements, which need not be whole tiles.

#include "common/async_copy.cuh"
#include "common/mma.cuh"
#include "experts/expert_tile.cuh"
#include "experts/gate.cuh"

#ifndef TILE_ROWS
#define TILE_ROWS 64
#endif
#ifndef STAGES
#define STAGES 3
#endif

constexpr int TILE_WEIGHTS = 128;  // rows of the weights of a thread block
constexpr int CHUNK = 64;          // inner elements
constexpr int ROW_BYTES = CHUNK * sizeof(Element);
constexpr int PIECES = ROW_BYTES / 16;
constexpr int WARP_ROWS = 32, WARP_WEIGHTS = 64;
constexpr int NUM_WARPS = TILE_ROWS / WARP_ROWS * (TILE_WEIGHTS / WARP_WEIGHTS);
constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;
constexpr int ROWS_AT_ONCE = NUM_THREADS / PIECES;
constexpr int ROW_COPIES = TILE_ROWS / ROWS_AT_ONCE, WEIGHT_COPIES = TILE_WEIGHTS / ROWS_AT_ONCE;
constexpr int OUT_COLUMNS = PAIRED ? TILE_WEIGHTS / 2 : TILE_WEIGHTS;  // of the output, of a thread block
constexpr int ROW_TILES = WARP_ROWS / 16, WEIGHT_TILES = WARP_WEIGHTS / 8;
static_assert(PIECES == 8, "eight pieces of 16 bytes change places in a row");

struct Stage {
  unsigned char rows[TILE_ROWS * ROW_BYTES], weights[TILE_WEIGHTS * ROW_BYTES];
};

// Where a piece of a row lies: eight rows that follow each other have it in different banks.
__device__ __forceinline__ int place(int row, int piece) { return row * ROW_BYTES + (piece ^ row % 8) * 16; }

// What a thread copies of each chunk: a piece of every ROWS_AT_ONCE-th row.
struct Copies {
  const int piece = threadIdx.x % PIECES, row = threadIdx.x / PIECES, in_features;
  const Element* rows[ROW_COPIES];
  const Element* weights[WEIGHT_COPIES];  // null: beyond the end

  __device__ __forceinline__ explicit Copies(int in_features) : in_features(in_features) {}

  __device__ __forceinline__ void copy(Stage& stage, int chunk) const {
    const int inner = chunk * CHUNK + piece * 8;
    const bool is_inside = inner < in_features;
#pragma unroll
    for (int i = 0; i < ROW_COPIES; i++) {
      const bool valid = is_inside && rows[i] != nullptr;
      copy_16_async(stage.rows + place(row + i * ROWS_AT_ONCE, piece), rows[i] + inner, valid);
    }
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; i++) {
      const bool valid = is_inside && weights[i] != nullptr;
      copy_16_async(stage.weights + place(row + i * ROWS_AT_ONCE, piece), weights[i] + inner, valid);
    }
  }
};

// The sums of a warp. A lane holds, of mma.cuh's D, row tile m and weight tile n: [m][n][4].
struct WarpSums {
  float sums[ROW_TILES][WEIGHT_TILES][4] = {};
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  const int first_row = warp / 2 * WARP_ROWS, half = warp % 2;

  // Row of the tile of weights where weight tile `n` begins. PAIRED: four tiles of gates, then the values' four.
  __device__ __forceinline__ int weight_row(int n) const {
    if (!PAIRED) return half * WARP_WEIGHTS + n * 8;
    return n / (WEIGHT_TILES / 2) * (TILE_WEIGHTS / 2) + half * (WARP_WEIGHTS / 2) + n % (WEIGHT_TILES / 2) * 8;
  }

  __device__ __forceinline__ void multiply(const Stage& stage) {
    const uint32 rows = shared_address(stage.rows), weights = shared_address(stage.weights);
#pragma unroll
    for (int k = 0; k < CHUNK / 16; k++) {
      uint32 a[ROW_TILES][4];
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        load_matrices(a[m], rows + place(first_row + m * 16 + lane % 16, 2 * k + lane / 16));
      }
#pragma unroll
      for (int n = 0; n < WEIGHT_TILES; n += 2) {
        uint32 b[4];
        load_matrices(b, weights + place(weight_row(n + lane / 16) + lane % 8, 2 * k + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
          mma_16x8x16<Element>(sums[m][n], a[m], {b[0], b[1]});
          mma_16x8x16<Element>(sums[m][n + 1], a[m], {b[2], b[3]});
        }
      }
    }
  }
};

// Grid: (num_tiles, ceil(out_features / OUT_COLUMNS)), NUM_THREADS threads; STAGES stages are dynamic.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    expert_tiles(Element* __restrict__ output,        // [num_pairs, out_features]
                 const Element* __restrict__ weight,  // [num_experts, out_features, in_features], PAIRED: twice the
                                                      // rows, gates and then values
                 const Element* __restrict__ bias,    // [num_experts, rows of a weight], or null
                 const Element* input,                // [num_pairs / pairs_per_row, in_features]
                 const int* order,                    // [num_pairs]
                 const int4* tiles,                   // [num_tiles]
                 int in_features, int out_features, int pairs_per_row, int tiles_are_known, float sharpness,
                 float limit) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ int pairs[TILE_ROWS];
  Stage* stages = reinterpret_cast<Stage*>(memory);
  const Gate gate = {sharpness, limit};
  wait_for_tiles(tiles_are_known);
  const ExpertTile tile(__ldcg(tiles + blockIdx.x));
  if (tile.count == 0) return;
  const int first_column = blockIdx.y * OUT_COLUMNS;
  const int num_rows = PAIRED ? 2 * out_features : out_features;  // of an expert's weights
  const Element* matrix = tile.weights(weight, num_rows, in_features);
  Copies copies(in_features);
#pragma unroll
  for (int i = 0; i < ROW_COPIES; i++) {
    const int row = copies.row + i * ROWS_AT_ONCE, pair = row < tile.count ? __ldcg(order + tile.first + row) : -1;
    copies.rows[i] = pair < 0 ? nullptr : input + static_cast<int64>(pair / pairs_per_row) * in_features;
    if (copies.piece == 0) pairs[row] = pair;
  }
#pragma unroll
  for (int i = 0; i < WEIGHT_COPIES; i++) {
    const int row = copies.row + i * ROWS_AT_ONCE, column = first_column + row % OUT_COLUMNS;
    const int64 of_expert = column + static_cast<int64>(row / OUT_COLUMNS) * out_features;
    copies.weights[i] = column < out_features ? matrix + of_expert * in_features : nullptr;
  }
  const int num_chunks = ceil_div(in_features, CHUNK);
  wait_for_previous_kernel();
#pragma unroll
  for (int chunk = 0; chunk < STAGES - 1; chunk++) {
    if (chunk < num_chunks) copies.copy(stages[chunk], chunk);
    commit_copies();
  }
  WarpSums warp;
#pragma unroll 1
  for (int chunk = 0; chunk < num_chunks; chunk++) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // this chunk is there, and nobody multiplies the one whose place comes next
    const int ahead = chunk + STAGES - 1;
    if (ahead < num_chunks) copies.copy(stages[ahead % STAGES], ahead);
    commit_copies();
    warp.multiply(stages[chunk % STAGES]);
  }
  const int g = warp.lane / 4, q = warp.lane % 4;
  constexpr int OUT_TILES = PAIRED ? WEIGHT_TILES / 2 : WEIGHT_TILES;
  const int64 first_bias = static_cast<int64>(tile.expert) * num_rows;
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = warp.first_row + m * 16 + h * 8 + g;
      if (row >= tile.count) continue;
      Element* to = output + static_cast<int64>(pairs[row]) * out_features;
#pragma unroll
      for (int n = 0; n < OUT_TILES; n++) {
        const int column = first_column + warp.weight_row(n) + 2 * q;
        if (column >= out_features) continue;
        float results[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int64 at = first_bias + column + e;
          results[e] = with_bias(warp.sums[m][n][2 * h + e], bias, at);
          if (PAIRED) {
            const float value = warp.sums[m][n + WEIGHT_TILES / 2][2 * h + e];
            results[e] = gate(results[e], with_bias(value, bias, at + out_features));
          }
        }
        *reinterpret_cast<uint32*>(to + column) = pack_pair<Element>(results[0], results[1]);
      }
    }
  }
}
