// output = residual + scale * activation(input * weight + bias) for 65 rows and more: prompts, and decode steps of
// many chats. PAIRED rows as in activation.cuh.
//
// Tiles of both matrices come by tensor maps, 64 inner elements at a time, into a ring in shared memory; one warp
// asks for tokens and one for weights, the first of which are on their way before the kernel before has ended
// (programmatic dependent launch). Two warpgroups multiply, half of the tile's tokens each. Two thread blocks of a
// cluster make neighbouring tiles, of the same weights (SHARED 1) or of the same tokens (SHARED 2), and each
// fetches half of those for both, since all multiprocessors together get no more than some 5.5 TB/s out of the L2
// cache. As many clusters as there is room for stay and take tiles in turns. The first `streamed` tiles are cut
// into equal parts for all of them instead (Stream-K, Osama et al. 2023, arXiv 2301.03598).

#ifndef SHARED
#define SHARED 0
#endif
#define CLUSTER (SHARED ? 2 : 1)
#ifndef RESIDUAL
#define RESIDUAL 0
#endif

#include "common/activation.cuh"
#include "common/bulk_copy.cuh"
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/left_sums.cuh"
#include "common/row_pieces.cuh"
#include "common/tensor_map.cuh"
#include "products/swizzled_tiles.cuh"

constexpr int CONSUMERS = 2, FETCHING_GROUP = CONSUMERS;
constexpr int NUM_MULTIPLIERS = CONSUMERS * GROUP_THREADS;
constexpr int GROUP_ROWS = TOKENS / CONSUMERS;  // of a warpgroup
constexpr int PARTS = GROUP_ROWS / 64;          // warpgroup products of 64 rows
constexpr int PART_SUMS = SUMS / 2;             // of a thread, of one of them
constexpr int COLUMNS = PAIRED ? SUMS / 2 : SUMS;
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
    unsigned char tokens[2 * TOKEN_HALF], weights[2 * WEIGHT_HALF];
  } stages[STAGES];
  unsigned char boxes[NUM_MULTIPLIERS / WARP_SIZE][BOXES][BOX_ROWS * BOX_ROW];  // not with RESIDUAL
  uint64 filled[STAGES], emptied[STAGES];
  uint32 number;  // of the cluster, in its first thread block
};

// Chunks `begin` to `end` of a tile.
struct Piece {
  int tile, begin, end;
};

// The tiles of a cluster, and which parts of them are this one's: what it leaves for others first, whole tiles, and
// then what others have begun, which is there by then.
struct Work {
  int num_tiles, streamed, chunks, cluster, num_clusters;
  int step = 0, next_tile = 0;

  __device__ __forceinline__ int first_of(int number) const {
    return static_cast<int>(static_cast<int64>(streamed) * chunks * number / num_clusters);
  }

  // False if there is no more.
  __device__ __forceinline__ bool next(Piece& piece) {
    const int begin = first_of(cluster), end = first_of(cluster + 1);
    const int last = end / chunks * chunks, whole = min((begin + chunks - 1) / chunks * chunks, last);
    if (step == 0) {
      step = 1;
      next_tile = whole / chunks;
      if (max(begin, last) < end) {
        piece = {last / chunks, max(begin, last) - last, end - last};
        return true;
      }
    }
    if (step == 1) {
      if (next_tile * chunks < last) {
        piece = {next_tile++, 0, chunks};
        return true;
      }
      step = 2;
      next_tile = streamed + cluster;
    }
    if (step == 2) {
      if (next_tile < num_tiles) {
        piece = {next_tile, 0, chunks};
        next_tile += num_clusters;
        return true;
      }
      step = 3;
      if (begin < whole) {
        piece = {begin / chunks, begin % chunks, chunks};
        return true;
      }
    }
    return false;
  }

  // The first cluster that has chunks of a tile.
  __device__ __forceinline__ int first_with(int tile) const {
    int from = cluster;
    while (first_of(from) > tile * chunks) from--;
    return from;
  }
};

// Where the tile of a thread block begins.
struct Place {
  int token, column;

  // Tiles go along the tokens, some together, then along the columns, so that all that run at a time have few
  // tokens and few weights between them.
  __device__ __forceinline__ Place(int tile, int num_rows, int num_columns, int rank) {
    const int of_group = ROWS_TOGETHER * num_columns;
    const int first = tile / of_group * ROWS_TOGETHER, rest = tile % of_group;
    const int size = min(ROWS_TOGETHER, num_rows - first);
    token = (first + rest % size) * (SHARED_WEIGHTS ? 2 : 1) + (SHARED_WEIGHTS ? rank : 0);
    column = rest / size * (SHARED_TOKENS ? 2 : 1) + (SHARED_TOKENS ? rank : 0);
    token *= TOKENS;
    column *= COLUMNS;
  }
};

__device__ __forceinline__ uint32 address_of(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// Half a tile, or with `shared` the half that this thread block fetches for both.
template <bool IS_SHARED, int HALF>
__device__ __forceinline__ void copy_halves(unsigned char* to, const TensorMap& map, int column, int row,
                                            int second_row, uint32 barrier, int rank) {
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
__device__ __forceinline__ void fill_ring(Shared& shared, Work work, int num_rows, int num_columns, int rank,
                                          Copy copy) {
  Ring<STAGES> ring;
  Piece piece;
#pragma unroll 1
  while (work.next(piece)) {
    const Place place(piece.tile, num_rows, num_columns, rank);
#pragma unroll 1
    for (int chunk = piece.begin; chunk < piece.end; chunk++) {
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

// A stage may be filled again, in all of the cluster.
__device__ __forceinline__ void release(const uint64& barrier) {
  const int lane = threadIdx.x % WARP_SIZE;
#if CLUSTER > 1
  if (lane < CLUSTER) arrive_there(address_in(&barrier, lane));
#else
  if (lane == 0) arrive(address_of(barrier));
#endif
}

using Sums = float[PARTS][PART_SUMS];

__device__ __forceinline__ void multiply(Sums& sums, Shared& shared, Ring<STAGES>& ring, int group, int count) {
#pragma unroll
  for (int i = 0; i < PARTS; i++) {
#pragma unroll
    for (int j = 0; j < PART_SUMS; j++) sums[i][j] = 0.0f;
  }
  int before = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < count; chunk++) {
    wait(address_of(shared.filled[ring.stage]), ring.parity);
    fence_products();
    const auto& stage = shared.stages[ring.stage];
    const uint64 rows = tile_descriptor(stage.tokens + group * GROUP_ROWS * TILE_ROW);
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
  wait_products<0>();
#pragma unroll
  for (int i = 0; i < PARTS; i++) settle(sums[i]);
  release(shared.emptied[before]);
}

// What becomes of a thread's sums: a pair of columns of a row, `d` being those of the first.
__device__ __forceinline__ uint32 finish_pair(const float* d, float2 shift) {
  if (PAIRED) {
    const float* values = d + COLUMNS / 2;
    return pack_pair<Element>(activate(rounded(d[0])) * rounded(values[0]),
                              activate(rounded(d[1])) * rounded(values[1]));
  }
  return pack_pair<Element>(activate(d[0] + shift.x), activate(d[1] + shift.y));
}

// Where the results of a thread go; `row` is its first of those of eight that a warp has in a product.
struct Results {
  const Element* bias;
  int num_tokens, out_features;

  __device__ __forceinline__ float2 shift(int column) const {
    if (PAIRED || bias == nullptr || column >= out_features) return make_float2(0.0f, 0.0f);
    return make_float2(to_float(bias[column]), to_float(bias[column + 1]));
  }
};

#if RESIDUAL
// Two groups of eight columns, of each of which a lane of a quad has a pair. Afterwards an even lane has four
// columns of the first group and an odd one of the second, so that the quad writes 32 bytes of a row at once.
__device__ __forceinline__ uint2 swap_in_pair(uint32 first, uint32 second) {
  const bool odd = threadIdx.x & 1;
  const uint32 got = __shfl_xor_sync(FULL_WARP, odd ? first : second, 1);
  return make_uint2(odd ? got : first, odd ? second : got);
}

__device__ __forceinline__ void unpack_four(uint2 packed, float (&values)[4]) {
  unpack_pair<Element>(packed.x, values[0], values[1]);
  unpack_pair<Element>(packed.y, values[2], values[3]);
}

// Adds the sums of a thread, scaled, to what was there; `row` is the warp's first, `column` the tile's.
__device__ __forceinline__ void add_results(const Sums& sums, const Results& to, Element* output,
                                            const Element* residual, float scale, int row, int column) {
  const int lane = threadIdx.x % WARP_SIZE, quad = lane % 4;
  const int mine = column + quad % 2 * 8 + quad / 2 * 4;
#pragma unroll
  for (int at = 0; at < COLUMNS; at += 16) {
    const float2 shifts[2] = {to.shift(column + at + 2 * quad), to.shift(column + at + 8 + 2 * quad)};
#pragma unroll
    for (int half = 0; half < 2 * PARTS; half++) {
      const float* d = sums[half / 2] + at / 2 + half % 2 * 2;
      const uint2 four = swap_in_pair(finish_pair(d, shifts[0]), finish_pair(d + 4, shifts[1]));
      const int token = row + lane / 4 + half / 2 * 64 + half % 2 * 8;
      if (token >= to.num_tokens || mine + at >= to.out_features) continue;
      const int64 place = static_cast<int64>(token) * to.out_features + mine + at;
      float values[4], before[4];
      unpack_four(four, values);
      unpack_four(__ldcg(reinterpret_cast<const uint2*>(residual + place)), before);
#pragma unroll
      for (int i = 0; i < 4; i++) values[i] = before[i] + rounded(values[i] * scale);
      *reinterpret_cast<uint2*>(output + place) =
          make_uint2(pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3]));
    }
  }
}
#else
// The sums of a thread to where they go, box by box; each warp stores its own while the next products run.
__device__ __forceinline__ void store_results(const Sums& sums, const Results& to, const TensorMap& output,
                                              unsigned char (&boxes)[BOXES][BOX_ROWS * BOX_ROW], int& turn, int row,
                                              int column) {
  const int lane = threadIdx.x % WARP_SIZE, quad = lane % 4;
  // Of a lane's row of four matrices: rows 0 to 7 and 8 to 15 of eight columns, the same of the next eight.
  const int first = (lane % 16) * BOX_ROW + lane / 16 * 16;
  const uint32 places[2] = {static_cast<uint32>(swizzled(first, BOX_ROW)),
                            static_cast<uint32>(swizzled(first + 32, BOX_ROW))};
#pragma unroll
  for (int at = 0; at < COLUMNS; at += BOX_COLUMNS) {
    float2 shifts[4];
#pragma unroll
    for (int i = 0; i < 4; i++) shifts[i] = to.shift(column + at + 8 * i + 2 * quad);
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      unsigned char* box = boxes[turn];
      turn = (turn + 1) % BOXES;
      if (lane == 0) wait_stores_read<BOXES - 1>();
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float* d = sums[part] + (at + 16 * i) / 2;
        const uint32 pairs[4] = {finish_pair(d, shifts[2 * i]), finish_pair(d + 2, shifts[2 * i]),
                                 finish_pair(d + 4, shifts[2 * i + 1]), finish_pair(d + 6, shifts[2 * i + 1])};
        store_matrices(shared_address(box) + places[i], pairs);
      }
      show_to_copies();
      __syncwarp();
      if (lane == 0) store_tile(output, column + at, row + part * 64, box);
    }
  }
}
#endif

// Grid: (thread blocks, no more than run at the same time), 384 threads; Shared is dynamic.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_MULTIPLIERS + GROUP_THREADS, 1)
    wide_linear(Element* output,                            // [num_tokens, out_features]; may be the residual
                const __grid_constant__ TensorMap results,  // of `output`, BOX_ROWS by BOX_COLUMNS
                const __grid_constant__ TensorMap tokens,   // [num_tokens, in_features], TOKENS / 2 rows a tile
                const __grid_constant__ TensorMap weights,  // [out_features, in_features], twice the rows if
                                                            // PAIRED; SUMS / 2 rows a tile
                const Element* bias,                        // [out_features], or null; not with PAIRED
                const Element* residual,                    // [num_tokens, out_features], with RESIDUAL
                float4* left_sums,                          // [gridDim.x, 64 * PARTS * SUMS], if `streamed`
                uint32* counters,                           // [1 + gridDim.x], zero before and after, if `streamed`
                float scale, int num_tokens, int in_features, int out_features, int streamed) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int group = threadIdx.x / GROUP_THREADS, rank = blockIdx.x % CLUSTER;
  const uint32 num_clusters = gridDim.x / CLUSTER;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(address_of(shared.filled[i]), 2);
      init_barrier(address_of(shared.emptied[i]), CLUSTER * NUM_MULTIPLIERS / WARP_SIZE);
    }
    publish_barriers();
    // Drawn by those that wait for others' sums, so that whoever has a smaller number has started before.
    if (streamed > 0 && rank == 0) shared.number = atomicInc(counters, num_clusters - 1);
  }
  __syncthreads();
  if (streamed > 0) {
    sync_cluster();
  } else {  // without a fence for the whole GPU
    announce_to_cluster();
    wait_for_cluster();
  }
  let_next_kernel_start();  // which may draw numbers from the same counter, once all of these are drawn
  const int cluster = streamed > 0 ? load_from(&shared.number, 0) : blockIdx.x / CLUSTER;
  const int num_rows = ceil_div(num_tokens, TOKENS * (SHARED_WEIGHTS ? 2 : 1));
  const int num_columns = ceil_div(out_features, COLUMNS * (SHARED_TOKENS ? 2 : 1));
  Work work = {num_rows * num_columns, streamed, ceil_div(in_features, TILE_INNER), cluster,
               static_cast<int>(num_clusters)};
  if (group == FETCHING_GROUP) {
    give_registers<COPY_REGISTERS>();
    const int thread = threadIdx.x % GROUP_THREADS;
    if (thread == 0) {
      prefetch_map(weights);
      fill_ring(shared, work, num_rows, num_columns, rank, [&](int stage, const Place& place, int column) {
        const uint32 barrier = address_of(shared.filled[stage]);
        expect_bytes(barrier, 2 * WEIGHT_HALF);
        copy_halves<SHARED_WEIGHTS, WEIGHT_HALF>(shared.stages[stage].weights, weights, column, place.column,
                                                 place.column + (PAIRED ? out_features : SUMS / 2), barrier, rank);
      });
    } else if (thread == WARP_SIZE) {
      prefetch_map(tokens);
      wait_for_previous_kernel();
      fill_ring(shared, work, num_rows, num_columns, rank, [&](int stage, const Place& place, int column) {
        const uint32 barrier = address_of(shared.filled[stage]);
        expect_bytes(barrier, 2 * TOKEN_HALF);
        copy_halves<SHARED_TOKENS, TOKEN_HALF>(shared.stages[stage].tokens, tokens, column, place.token,
                                               place.token + TOKENS / 2, barrier, rank);
      });
    }
  } else {
    take_registers<COMPUTE_REGISTERS>();
    wait_for_previous_kernel();
    const Results to = {bias, num_tokens, out_features};
    const int warp = threadIdx.x / WARP_SIZE, first_row = group * GROUP_ROWS + warp % 4 * BOX_ROWS;
    const int slots = rank * work.num_clusters;
    const LeftSums<PARTS * PART_SUMS, NUM_MULTIPLIERS> left = {
        left_sums + static_cast<int64>(slots) * (PARTS * PART_SUMS / 4) * NUM_MULTIPLIERS, counters + 1 + slots};
    Ring<STAGES> ring;
    Piece piece;
    int turn = 0;  // of the warp's boxes
#pragma unroll 1
    while (work.next(piece)) {
      Sums sums;
      multiply(sums, shared, ring, group, piece.end - piece.begin);
      auto& flat = reinterpret_cast<float (&)[PARTS * PART_SUMS]>(sums);
      if (piece.end < work.chunks) {
        left.leave(flat, work.cluster);
        continue;
      }
      if (piece.begin > 0) left.add(flat, work.first_with(piece.tile), work.cluster);
      const Place place(piece.tile, num_rows, num_columns, rank);
#if RESIDUAL
      add_results(sums, to, output, residual, scale, place.token + first_row, place.column);
#else
      store_results(sums, to, results, shared.boxes[warp], turn, place.token + first_row, place.column);
#endif
    }
#if !RESIDUAL
    if (threadIdx.x % WARP_SIZE == 0) wait_stores();
    __syncwarp();
#endif
  }
  announce_to_cluster();  // others arrive at this thread block's barriers until then
  wait_for_cluster();
}
