// output = residual + activation(weight * input + bias) for 9 to 64 tokens and a weight of any size: what
// warpgroup_linear.cu is too small for. PAIRED rows as in activation.cuh.
//
// Weights stream through a ring of shared memory, tiles of 128 rows in chunks of 64 inner elements with all
// tokens' same elements beside them; one thread block on every multiprocessor, each with equally many chunks
// (stream_k_share.cuh). Two warpgroups multiply, weights on the side that has 64 rows; of the third two warps
// fetch weights and two fetch tokens, so that the first tokens do not wait for all weights of the ring, which are
// on their way before the kernel before has ended (programmatic dependent launch). Every tile reads all tokens
// again, through the L2 cache: with 64 tokens half as many bytes again as the weights.

#include "common/activation.cuh"
#include "common/dependent_launch.cuh"
#include "common/mbarrier.cuh"
#include "common/row_pieces.cuh"
#include "common/swizzled_tiles.cuh"
#include "products/stream_k_share.cuh"

constexpr int CHUNKS = IN_FEATURES / TILE_INNER;  // of a tile
static_assert(IN_FEATURES % TILE_INNER == 0, "whole chunks");
constexpr int WARPGROUPS = 2, FETCHING_GROUP = WARPGROUPS;
constexpr int NUM_MULTIPLIERS = WARPGROUPS * GROUP_THREADS;
constexpr int ROWS = 64 * WARPGROUPS;                // of the weight, of a tile
constexpr int COLUMNS = PAIRED ? ROWS / 2 : ROWS;    // of the output, of a tile
constexpr int RESULT_STRIDE = COLUMNS + PIECE;       // no bank conflicts
constexpr int FETCHERS = GROUP_THREADS / 2;          // of weights, and of tokens
constexpr int FETCHED_ROWS = FETCHERS / ROW_PIECES;  // at once

struct Shared {
  struct {
    unsigned char weights[ROWS * TILE_ROW], tokens[TOKENS * TILE_ROW];
  } stages[STAGES];
  Element results[TOKENS * RESULT_STRIDE];
  uint64 filled[STAGES], emptied[STAGES];
  int number;  // of the thread block
};

__device__ __forceinline__ uint32 address_of(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// What a fetching thread copies: a piece of 16 bytes of every eighth row of a tile.
struct PieceCopy {
  const Element* from;
  int row, place;

  __device__ __forceinline__ explicit PieceCopy(const Element* matrix) {
    const int thread = threadIdx.x % FETCHERS;
    row = thread / ROW_PIECES;
    place = swizzled(thread * 16, TILE_ROW);
    from = matrix + static_cast<int64>(row) * IN_FEATURES + thread % ROW_PIECES * PIECE;
  }

  // Rows of the weight from those of output column `column` on; with PAIRED eight gates, then their eight values.
  __device__ __forceinline__ void weights(unsigned char* tile, int column, int chunk, int out_features) const {
    const Element* first = from + static_cast<int64>(column) * IN_FEATURES + chunk * TILE_INNER;
#pragma unroll 8
    for (int i = 0; i < ROWS / FETCHED_ROWS; i++) {
      const int ahead = (PAIRED ? i / 2 : i) * FETCHED_ROWS;
      const int64 rows = ahead + (PAIRED && i % 2 ? static_cast<int64>(out_features) : 0);
      const bool exists = column + ahead + row < out_features;
      copy_16_async(tile + place + i * FETCHED_ROWS * TILE_ROW, first + rows * IN_FEATURES, exists);
    }
  }

  __device__ __forceinline__ void tokens(unsigned char* tile, int chunk, int num_tokens) const {
#pragma unroll 8
    for (int i = 0; i < TOKENS / FETCHED_ROWS; i++) {
      const int64 ahead = i * FETCHED_ROWS;
      copy_16_async(tile + place + i * FETCHED_ROWS * TILE_ROW, from + ahead * IN_FEATURES + chunk * TILE_INNER,
                    row + ahead < num_tokens);
    }
  }
};

// Fills the ring with what `copy(stage, walk)` fetches; `before_reuse` says from which chunk on a place is used
// again.
template <typename Copy>
__device__ __forceinline__ void fill_ring(Shared& shared, const Share& share, Copy copy) {
  const int count = share.end - share.begin;
  Walk walk(share);
  Ring<STAGES> ring;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    if (i >= STAGES) wait(address_of(shared.emptied[ring.stage]), ring.parity ^ 1);
    copy(ring.stage, walk);
    arrive_when_copied(address_of(shared.filled[ring.stage]));
    ring.advance();
    walk.advance();
  }
  wait_copies<0>();
}

// The sums of a warpgroup's thread, to `results`, [TOKENS, COLUMNS], as the activation leaves them.
__device__ __forceinline__ void store_results(Element* results, const float (&sums)[TOKENS / 2],
                                              const Element* bias, int first_column, int out_features) {
  const int lane = threadIdx.x % WARP_SIZE, of_16 = threadIdx.x / WARP_SIZE;
  const int column = (PAIRED ? 8 : 16) * of_16 + lane / 4;
  float shifts[2] = {};
  if (!PAIRED && bias != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int at = first_column + column + 8 * half;
      if (at < out_features) shifts[half] = to_float(bias[at]);
    }
  }
#pragma unroll
  for (int i = 0; i < TOKENS / 2; i += 4) {
    const float* d = sums + i;  // two tokens of a row, and of the eighth row after it
    Element* first = results + (2 * i + lane % 4 * 2) * RESULT_STRIDE + column;
#pragma unroll
    for (int next = 0; next < 2; next++) {
      Element* to = first + next * RESULT_STRIDE;
      if (PAIRED) {
        *to = from_float<Element>(activate(rounded(d[next])) * rounded(d[2 + next]));
      } else {
        to[0] = from_float<Element>(activate(d[next] + shifts[0]));
        to[8] = from_float<Element>(activate(d[2 + next] + shifts[1]));
      }
    }
  }
}

// From `results` to the output, whole pieces of a token's columns.
__device__ __forceinline__ void write_results(const Element* results, Element* output, const Element* residual,
                                              int first_column, int out_features, int num_tokens) {
  constexpr int PIECES = COLUMNS / PIECE;
#pragma unroll 4
  for (int i = threadIdx.x; i < TOKENS * PIECES; i += NUM_MULTIPLIERS) {
    const int token = i / PIECES, column = i % PIECES * PIECE;
    if (token >= num_tokens || first_column + column >= out_features) continue;
    uint4 piece = load_16(results + token * RESULT_STRIDE + column);
    const int64 place = static_cast<int64>(token) * out_features + first_column + column;
    if (residual != nullptr) {
      float values[PIECE], before[PIECE];
      unpack(piece, values);
      unpack(__ldcg(reinterpret_cast<const uint4*>(residual + place)), before);
#pragma unroll
      for (int j = 0; j < PIECE; j++) values[j] += before[j];
      piece = pack(values);
    }
    store_16(output + place, piece);
  }
}

// Grid: (thread blocks, no more than run at the same time), 384 threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_MULTIPLIERS + GROUP_THREADS, 1)
    stream_k_linear(Element* output,                     // [num_tokens, out_features]; may be the residual
                    const Element* __restrict__ weight,  // [out_features, IN_FEATURES], twice the rows if PAIRED
                    const Element* bias,                 // [out_features], or null; not with PAIRED
                    const Element* input,                // [num_tokens, IN_FEATURES]
                    const Element* residual,             // [num_tokens, out_features], or null
                    float4* left_sums,                   // [gridDim.x, 32 * TOKENS]
                    uint32* counters,                    // [1 + gridDim.x], zero before and after
                    int num_tokens, int out_features) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int group = threadIdx.x / GROUP_THREADS;
  if (threadIdx.x == 0) {
    shared.number = atomicInc(counters, gridDim.x - 1);
    for (int i = 0; i < STAGES; i++) {
      init_barrier(address_of(shared.filled[i]), GROUP_THREADS);
      init_barrier(address_of(shared.emptied[i]), NUM_MULTIPLIERS / WARP_SIZE);
    }
    publish_barriers();
  }
  __syncthreads();
  let_next_kernel_start();  // which may draw numbers from the same counter, once all of these are drawn
  const Share share(ceil_div(out_features, COLUMNS), CHUNKS, shared.number);
  if (group == FETCHING_GROUP) {
    give_registers<56>();
    if (threadIdx.x % GROUP_THREADS < FETCHERS) {
      const PieceCopy piece(weight);
      fill_ring(shared, share, [&](int stage, const Walk& walk) {
        piece.weights(shared.stages[stage].weights, walk.tile * COLUMNS, walk.chunk, out_features);
      });
    } else {
      const PieceCopy piece(input);
      wait_for_previous_kernel();
      fill_ring(shared, share, [&](int stage, const Walk& walk) {
        piece.tokens(shared.stages[stage].tokens, walk.chunk, num_tokens);
      });
    }
    return;
  }
  take_registers<224>();
  wait_for_previous_kernel();
  const LeftSums<TOKENS / 2, NUM_MULTIPLIERS> left{left_sums, counters + 1};
  Ring<STAGES> ring;
#pragma unroll 1
  for (Walk walk(share); walk.range.begin < walk.range.end;) {
    const int first = walk.chunk, index = walk.tile;
    const int count = min(CHUNKS - first, walk.range.end - walk.range.begin);
    float sums[TOKENS / 2] = {};
    int before = 0;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
      wait(address_of(shared.filled[ring.stage]), ring.parity);
      show_to_products();
      fence_products();
      const auto& stage = shared.stages[ring.stage];
      multiply_tiles<TOKENS>(sums, tile_descriptor(stage.weights + group * 64 * TILE_ROW),
                             tile_descriptor(stage.tokens));
      commit_products();
      wait_products<1>();
      if (i > 0 && threadIdx.x % WARP_SIZE == 0) arrive(address_of(shared.emptied[before]));
      before = ring.stage;
      ring.advance();
    }
    wait_products<0>();
    settle(sums);
    if (threadIdx.x % WARP_SIZE == 0) arrive(address_of(shared.emptied[before]));
    walk.advance(count);
    if (first + count < CHUNKS) {
      left.leave(sums, share.number);
      continue;
    }
    if (first > 0) left.add(sums, share.first_with(index * CHUNKS), share.number);
    const int column = index * COLUMNS;
    sync_named(1, NUM_MULTIPLIERS);  // the results before are written
    store_results(shared.results, sums, bias, column, out_features);
    sync_named(1, NUM_MULTIPLIERS);
    write_results(shared.results, output, residual, column, out_features, num_tokens);
  }
}
