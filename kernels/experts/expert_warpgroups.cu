// What expert_tiles.cu does, on Hopper, where very many pairs share an expert: tiles of 128 pairs by 256 rows of
// the expert's weights, in chunks of 64 inner elements that go through a ring of shared memory.
//
// Two warpgroups multiply, 64 pairs each; the third one fetches, rows of the input from wherever the pairs have
// them, and does nothing else (as in warpgroup_product.cuh). With PAIRED weights are eight gates, then the eight
// values that go with them, so that both are in the same lane at the end. Pairs beyond the end of a tile are zeros,
// and so is what lies beyond the rows of the weights and the inner elements, which need not be whole tiles.

#include "common/mbarrier.cuh"
#include "common/mma.cuh"
#include "experts/expert_tile.cuh"
#include "experts/gate.cuh"
#include "common/swizzled_tiles.cuh"

#ifndef STAGES
#define STAGES 4
#endif

constexpr int WARPGROUPS = 2, FETCHING_GROUP = WARPGROUPS;
constexpr int NUM_MULTIPLIERS = WARPGROUPS * GROUP_THREADS;
constexpr int TILE_PAIRS = 64 * WARPGROUPS, TILE_WEIGHTS = 256;
constexpr int OUT_COLUMNS = PAIRED ? TILE_WEIGHTS / 2 : TILE_WEIGHTS;  // of the output, of a thread block
constexpr int COLUMNS_AT_ONCE = PAIRED ? ROWS_AT_ONCE / 2 : ROWS_AT_ONCE;
static_assert(ROWS_AT_ONCE == 16, "eight gates and their values are copied at once");

struct Shared {
  struct {
    unsigned char rows[TILE_PAIRS * TILE_ROW], weights[TILE_WEIGHTS * TILE_ROW];
  } stages[STAGES];
  uint64 filled[STAGES], emptied[STAGES];
};

__device__ __forceinline__ uint32 address_of(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// What a fetching thread copies of each chunk: a piece of 16 bytes of every sixteenth row.
struct Copies {
  const int row = threadIdx.x % GROUP_THREADS / ROW_PIECES, piece = threadIdx.x % ROW_PIECES, in_features;
  const int place = swizzled(threadIdx.x % GROUP_THREADS * 16, TILE_ROW);
  const Element* rows[TILE_PAIRS / ROWS_AT_ONCE];  // null: beyond the end
  const Element* weights;
  int num_columns;  // of the output, from that of the first row on

  __device__ __forceinline__ Copies(const ExpertTile& tile, const Element* weight, const Element* input,
                                    const int* order, int in_features, int out_features, int pairs_per_row)
      : in_features(in_features) {
#pragma unroll
    for (int i = 0; i < TILE_PAIRS / ROWS_AT_ONCE; i++) {
      const int at = row + i * ROWS_AT_ONCE, pair = at < tile.count ? __ldcg(order + tile.first + at) : -1;
      rows[i] = pair < 0 ? nullptr : input + static_cast<int64>(pair / pairs_per_row) * in_features + piece * 8;
    }
    const int column = blockIdx.y * OUT_COLUMNS + (PAIRED ? row % 8 : row);
    const int64 first = column + (PAIRED ? static_cast<int64>(row / 8) * out_features : 0);
    num_columns = out_features - column;
    weights = tile.weights(weight, PAIRED ? 2 * out_features : out_features, in_features) + first * in_features +
              piece * 8;
  }

  __device__ __forceinline__ void copy(unsigned char* to_rows, unsigned char* to_weights, int chunk) const {
    const int inner = chunk * TILE_INNER;
    const bool is_inside = inner + piece * 8 < in_features;
#pragma unroll
    for (int i = 0; i < TILE_PAIRS / ROWS_AT_ONCE; i++) {
      const bool valid = is_inside && rows[i] != nullptr;
      copy_16_async(to_rows + place + i * ROWS_AT_ONCE * TILE_ROW, rows[i] + inner, valid);
    }
    const Element* from = weights + inner;
#pragma unroll 8
    for (int i = 0; i < TILE_WEIGHTS / ROWS_AT_ONCE; i++) {
      const bool valid = is_inside && i * COLUMNS_AT_ONCE < num_columns;
      copy_16_async(to_weights + place + i * ROWS_AT_ONCE * TILE_ROW,
                    from + static_cast<int64>(i * COLUMNS_AT_ONCE) * in_features, valid);
    }
  }
};

__device__ __forceinline__ void fetch(Shared& shared, const Copies& copies, int num_chunks) {
  Ring<STAGES> ring;
#pragma unroll 1
  for (int chunk = 0; chunk < num_chunks; chunk++) {
    if (chunk >= STAGES) wait(address_of(shared.emptied[ring.stage]), ring.parity ^ 1);
    copies.copy(shared.stages[ring.stage].rows, shared.stages[ring.stage].weights, chunk);
    arrive_when_copied(address_of(shared.filled[ring.stage]));
    ring.advance();
  }
  wait_copies<0>();
}

// The sums of a warpgroup's 64 pairs and all rows of the weights, as wgmma.cuh has them.
__device__ __forceinline__ void multiply(float (&sums)[TILE_WEIGHTS / 2], Shared& shared, int group,
                                         int num_chunks) {
  Ring<STAGES> ring;
  int before = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < num_chunks; chunk++) {
    wait(address_of(shared.filled[ring.stage]), ring.parity);
    show_to_products();
    fence_products();
    const auto& stage = shared.stages[ring.stage];
    multiply_tiles<TILE_WEIGHTS>(sums, tile_descriptor(stage.rows + group * 64 * TILE_ROW),
                                 tile_descriptor(stage.weights));
    commit_products();
    wait_products<1>();
    if (chunk > 0 && threadIdx.x % WARP_SIZE == 0) arrive(address_of(shared.emptied[before]));
    before = ring.stage;
    ring.advance();
  }
  wait_products<0>();
  settle(sums);
}

// Grid: (num_tiles, ceil(out_features / OUT_COLUMNS)), 384 threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_MULTIPLIERS + GROUP_THREADS, 1)
    expert_warpgroups(Element* __restrict__ output,        // [num_pairs, out_features]
                      const Element* __restrict__ weight,  // [num_experts, out_features, in_features], PAIRED:
                                                           // twice the rows, gates and then values
                      const Element* __restrict__ bias,    // [num_experts, rows of a weight], or null
                      const Element* input,                // [num_pairs / pairs_per_row, in_features]
                      const int* order,                    // [num_pairs]
                      const int4* tiles,                   // [num_tiles]
                      int in_features, int out_features, int pairs_per_row, int tiles_are_known, float sharpness,
                      float limit) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  wait_for_tiles(tiles_are_known);
  const ExpertTile tile(__ldcg(tiles + blockIdx.x));
  if (tile.count == 0) return;
  const int group = threadIdx.x / GROUP_THREADS, num_chunks = ceil_div(in_features, TILE_INNER);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(address_of(shared.filled[i]), GROUP_THREADS);
      init_barrier(address_of(shared.emptied[i]), NUM_MULTIPLIERS / WARP_SIZE);
    }
    publish_barriers();
  }
  __syncthreads();
  if (group == FETCHING_GROUP) {
    give_registers<56>();
    const Copies copies(tile, weight, input, order, in_features, out_features, pairs_per_row);
    wait_for_previous_kernel();
    fetch(shared, copies, num_chunks);
    return;
  }
  take_registers<224>();
  wait_for_previous_kernel();
  float sums[TILE_WEIGHTS / 2] = {};
  multiply(sums, shared, group, num_chunks);

  const Gate gate = {sharpness, limit};
  const int lane = threadIdx.x % WARP_SIZE, q = lane % 4, first_column = blockIdx.y * OUT_COLUMNS;
  const int64 first_bias = static_cast<int64>(tile.expert) * (PAIRED ? 2 * out_features : out_features);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = threadIdx.x / WARP_SIZE * 16 + h * 8 + lane / 4;
    if (row >= tile.count) continue;
    Element* to = output + static_cast<int64>(__ldcg(order + tile.first + row)) * out_features;
#pragma unroll
    for (int n = 0; n < OUT_COLUMNS / 8; n++) {
      const int column = first_column + n * 8 + 2 * q;
      if (column >= out_features) continue;
      const int first = 4 * (PAIRED ? 2 * n : n) + 2 * h, below = PAIRED ? 4 : 0;
      float results[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int64 at = first_bias + column + e;
        results[e] = with_bias(sums[first + e], bias, at);
        if (PAIRED) results[e] = gate(results[e], with_bias(sums[first + below + e], bias, at + out_features));
      }
      *reinterpret_cast<uint32*>(to + column) = pack_pair<Element>(results[0], results[1]);
    }
  }
}
