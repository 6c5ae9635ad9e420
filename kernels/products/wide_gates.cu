// output = activation(input * gates) * (input * values), the first half of a gated feed-forward (Shazeer 2020,
// arXiv 2002.05202), for 65 rows and more: prompts, and decode steps of many chats.
//
// Tiles of both matrices come by tensor maps, 64 inner elements at a time, into a ring in shared memory; one warp
// asks for tokens and one for weights, the first of which are on their way before the kernel before has ended
// (programmatic dependent launch). Two thread blocks of a cluster make neighbouring tiles, of the same weights
// (SHARED 1) or of the same tokens (SHARED 2), and each fetches half of those for both, since all multiprocessors
// together get no more than some 5.5 TB/s out of the L2 cache. As many clusters as there is room for stay and take
// tiles in turns. Two warpgroups multiply: half of a tile's tokens each, or with TURNS whole tiles, every other
// one, so that one activates and stores what it has while the other's products run.

#define CLUSTER 2

#include "common/activation.cuh"
#include "common/bulk_copy.cuh"
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/tensor_map.cuh"
#include "common/swizzled_tiles.cuh"

constexpr int CONSUMERS = 2, FETCHING_GROUP = CONSUMERS;
constexpr int NUM_MULTIPLIERS = CONSUMERS * GROUP_THREADS;
constexpr int GROUP_ROWS = TURNS ? TOKENS : TOKENS / CONSUMERS;  // of a warpgroup
constexpr int PARTS = GROUP_ROWS / 64;                           // warpgroup products of 64 rows
constexpr int COLUMNS = SUMS / 2;                                // of the output: a gate and a value for each
constexpr int PART_SUMS = SUMS / 2;                              // of a thread, of a part
constexpr int TOKEN_HALF = TOKENS / 2 * TILE_ROW, WEIGHT_HALF = SUMS / 2 * TILE_ROW;  // bytes
constexpr bool SHARED_WEIGHTS = SHARED == 1, SHARED_TOKENS = SHARED == 2;
constexpr int BOX_COLUMNS = 32, BOX_ROWS = 16;  // of the output: what a warp stores at once
constexpr int BOX_ROW = BOX_COLUMNS * static_cast<int>(sizeof(Element));  // bytes
constexpr int BOXES = 2;                                                  // of a warp, in shared memory
constexpr int ROWS_TOGETHER = 8;  // tiles of tokens that take turns with the same weights
constexpr int COMPUTE_REGISTERS = 232, COPY_REGISTERS = 40;
static_assert(GROUP_ROWS % 64 == 0 && COLUMNS % BOX_COLUMNS == 0, "whole products, whole boxes");

struct Shared {
  struct {
    unsigned char tokens[2 * TOKEN_HALF], weights[2 * WEIGHT_HALF];  // of these gates, then values
  } stages[STAGES];
  unsigned char boxes[NUM_MULTIPLIERS / WARP_SIZE][BOXES][BOX_ROWS * BOX_ROW];
  uint64 filled[STAGES], emptied[STAGES];
};

// Which tiles a cluster makes, two at a time, and where they are.
struct Tiles {
  const int num_rows, num_columns, chunks, rank;  // pairs of tiles that share weights, or tokens

  __device__ __forceinline__ Tiles(int num_tokens, int in_features, int out_features)
      : num_rows(ceil_div(num_tokens, TOKENS * (SHARED_WEIGHTS ? 2 : 1))),
        num_columns(ceil_div(out_features, COLUMNS * (SHARED_TOKENS ? 2 : 1))),
        chunks(ceil_div(in_features, TILE_INNER)),
        rank(blockIdx.x % CLUSTER) {}

  __device__ __forceinline__ int first() const { return blockIdx.x / CLUSTER; }
  __device__ __forceinline__ int step() const { return gridDim.x / CLUSTER; }
  __device__ __forceinline__ int end() const { return num_rows * num_columns; }
};

// Where the tile of a thread block begins. They go along the tokens, some together, then along the columns, so that
// all that are made at a time have few tokens and few weights between them.
struct Place {
  int token, column;

  __device__ __forceinline__ Place(const Tiles& tiles, int tile) {
    const int of_group = ROWS_TOGETHER * tiles.num_columns;
    const int first = tile / of_group * ROWS_TOGETHER, rest = tile % of_group;
    const int size = min(ROWS_TOGETHER, tiles.num_rows - first);
    const int row = first + rest % size, at = rest / size;
    token = (SHARED_WEIGHTS ? 2 * row + tiles.rank : row) * TOKENS;
    column = (SHARED_TOKENS ? 2 * at + tiles.rank : at) * COLUMNS;
  }
};

__device__ __forceinline__ uint32 address_of(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// Half a tile from `row` on and half from `second_row`; of what is shared the half that this thread block fetches.
template <bool IS_SHARED, int HALF>
__device__ __forceinline__ void copy_halves(unsigned char* to, const TensorMap& map, int column, int row,
                                            int second_row, uint32 barrier, int rank) {
  expect_bytes(barrier, 2 * HALF);
  if (IS_SHARED) {
    copy_tile_to_all(to + rank * HALF, map, column, rank == 0 ? row : second_row, barrier, 3);
  } else {
    copy_tile(to, map, column, row, barrier);
    copy_tile(to + HALF, map, column, second_row, barrier);
  }
}

// What a thread of those that fetch does: `copy(stage, place, column)` asks for one side of a chunk. Where a tile
// is takes divisions, so it is found out before its chunks are.
template <typename Copy>
__device__ __forceinline__ void fill_ring(Shared& shared, const Tiles& tiles, Copy copy) {
  Ring<STAGES> ring;
#pragma unroll 1
  for (int tile = tiles.first(); tile < tiles.end(); tile += tiles.step()) {
    const Place place(tiles, tile);
#pragma unroll 1
    for (int chunk = 0; chunk < tiles.chunks; chunk++) {
      wait(address_of(shared.emptied[ring.stage]), ring.parity ^ 1);
      copy(ring.stage, place, chunk * TILE_INNER);
      ring.advance();
    }
  }
#pragma unroll 1
  for (int i = 0; i < STAGES; i++) {  // until all of the cluster are done with what this thread block has
    wait(address_of(shared.emptied[ring.stage]), ring.parity ^ 1);
    ring.advance();
  }
}

// A stage may be filled again, in both thread blocks of the cluster.
__device__ __forceinline__ void release(const uint64& barrier) {
  const int lane = threadIdx.x % WARP_SIZE;
  if (lane < CLUSTER) arrive_there(address_in(&barrier, lane));
}

// With TURNS the warpgroups multiply one after another: who came to a stage of the ring too early would take an old
// phase of its barrier for the one to come.
__device__ __forceinline__ void take_turn(int group) {
  if (TURNS) sync_named(1 + group, NUM_MULTIPLIERS);
}
__device__ __forceinline__ void pass_turn(int group) {
  if (TURNS) arrive_named(1 + (group + 1) % CONSUMERS, NUM_MULTIPLIERS);
}

using Sums = float[PARTS][PART_SUMS];

__device__ __forceinline__ void multiply(Sums& sums, Shared& shared, Ring<STAGES>& ring, int group, int chunks) {
  const int first_row = TURNS ? 0 : group * GROUP_ROWS;
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
#pragma unroll
    for (int j = 0; j < PART_SUMS; j++) sums[i][j] = 0.0f;
  }
  int before = 0;
  take_turn(group);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; chunk++) {
    wait(address_of(shared.filled[ring.stage]), ring.parity);
    fence_products();
    const auto& stage = shared.stages[ring.stage];
    const uint64 rows = tile_descriptor(stage.tokens + first_row * TILE_ROW);
    const uint64 columns = tile_descriptor(stage.weights);
#pragma unroll
    for (int at = 0; at < TILE_ROW; at += 32) {  // 16 inner elements
#pragma unroll
      for (int i = 0; i < PARTS; i++) {
        Product<SUMS>::shared_shared(sums[i], moved(rows, i * 64 * TILE_ROW + at), moved(columns, at), true);
      }
    }
    commit_products();
    wait_products<1>();
    if (chunk > 0) release(shared.emptied[before]);
    before = ring.stage;
    ring.advance();
  }
  pass_turn(group);
  wait_products<0>();
#pragma unroll
  for (int i = 0; i < PARTS; i++) settle(sums[i]);
  release(shared.emptied[before]);
}

// A pair of columns of a row; `gates` are the sums of the first. Nothing is rounded before the end.
__device__ __forceinline__ uint32 finish_pair(const float* gates) {
  const float* values = gates + COLUMNS / 2;
  return pack_pair<Element>(activate(gates[0]) * values[0], activate(gates[1]) * values[1]);
}

// The boxes of a warp, which are written and stored in turns.
struct Boxes {
  unsigned char (&memory)[BOXES][BOX_ROWS * BOX_ROW];
  int turn = 0;

  // The sums of a thread to where they go, from `column` of `row` on.
  __device__ __forceinline__ void store(const Sums& sums, const TensorMap& output, int row, int column) {
    const int lane = threadIdx.x % WARP_SIZE;
    // Of a lane's row of four matrices: rows 0 to 7 and 8 to 15 of eight columns, the same of the next eight.
    const int first = lane % 16 * BOX_ROW + lane / 16 * 16;
    const int places[2] = {swizzled(first, BOX_ROW), swizzled(first + 32, BOX_ROW)};
#pragma unroll
    for (int at = 0; at < COLUMNS; at += BOX_COLUMNS) {
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        unsigned char* box = memory[turn];
        turn = (turn + 1) % BOXES;
        if (lane == 0) wait_stores_read<BOXES - 1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const float* d = sums[part] + (at + 16 * i) / 2;
          const uint32 pairs[4] = {finish_pair(d), finish_pair(d + 2), finish_pair(d + 4), finish_pair(d + 6)};
          store_matrices(shared_address(box) + places[i], pairs);
        }
        show_to_copies();
        __syncwarp();
        if (lane == 0) store_tile(output, column + at, row + part * 64, box);
      }
    }
  }
};

// Grid: (thread blocks, no more than run at the same time), 384 threads; Shared is dynamic.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_MULTIPLIERS + GROUP_THREADS, 1)
    wide_gates(const __grid_constant__ TensorMap output,  // [num_tokens, out_features], BOX_ROWS by BOX_COLUMNS
               const __grid_constant__ TensorMap input,   // [num_tokens, in_features], TOKENS / 2 rows a tile
               const __grid_constant__ TensorMap weight,  // [2 * out_features, in_features]: gates, values; SUMS /
                                                          // 2 rows a tile
               int num_tokens, int in_features, int out_features) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  let_next_kernel_start();
  const int group = threadIdx.x / GROUP_THREADS;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(address_of(shared.filled[i]), 2);
      init_barrier(address_of(shared.emptied[i]), CLUSTER * (TURNS ? 1 : CONSUMERS) * 4);
    }
    publish_barriers();
  }
  __syncthreads();
  announce_to_cluster();  // without a fence for the whole GPU
  wait_for_cluster();
  const Tiles tiles(num_tokens, in_features, out_features);
  if (group == FETCHING_GROUP) {
    give_registers<COPY_REGISTERS>();
    const int thread = threadIdx.x % GROUP_THREADS;
    if (thread == 0) {
      prefetch_map(weight);
      fill_ring(shared, tiles, [&](int stage, const Place& place, int column) {
        copy_halves<SHARED_WEIGHTS, WEIGHT_HALF>(shared.stages[stage].weights, weight, column, place.column,
                                                 place.column + out_features, address_of(shared.filled[stage]),
                                                 tiles.rank);
      });
    } else if (thread == WARP_SIZE) {
      prefetch_map(input);
      wait_for_previous_kernel();
      fill_ring(shared, tiles, [&](int stage, const Place& place, int column) {
        copy_halves<SHARED_TOKENS, TOKEN_HALF>(shared.stages[stage].tokens, input, column, place.token,
                                               place.token + TOKENS / 2, address_of(shared.filled[stage]),
                                               tiles.rank);
      });
    }
  } else {
    take_registers<COMPUTE_REGISTERS>();
    wait_for_previous_kernel();
    const int warp = threadIdx.x / WARP_SIZE;
    const int box_row = (TURNS ? 0 : group * GROUP_ROWS) + warp % 4 * BOX_ROWS;
    if (group == CONSUMERS - 1) pass_turn(group);
    Boxes boxes = {shared.boxes[warp]};
    Ring<STAGES> ring;
    int number = 0;
#pragma unroll 1
    for (int tile = tiles.first(); tile < tiles.end(); tile += tiles.step(), number++) {
      if (TURNS && number % CONSUMERS != group) {
        ring.skip(tiles.chunks);
        continue;
      }
      Sums sums;
      multiply(sums, shared, ring, group, tiles.chunks);
      const Place place(tiles, tile);
      boxes.store(sums, output, place.token + box_row, place.column);
    }
    if (threadIdx.x % WARP_SIZE == 0) wait_stores();
    __syncwarp();
  }
  announce_to_cluster();  // others arrive at this thread block's barriers until then
  wait_for_cluster();
}
