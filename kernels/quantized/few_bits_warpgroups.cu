// few_bits_linear.cu by Hopper's products of warpgroups, weights as the operand that comes from registers.
//
// The input's rows are the operand in shared memory, in the order of inner elements in which a lane gets its
// weights. `lay_out_rows` brings them into this order, chunk by chunk as they will lie in shared memory, so that a
// chunk of all rows is one bulk copy. A step's products run while the next step's weights are widened.

#include "common/bulk_copy.cuh"
#include "common/wgmma.cuh"
#include "quantized/few_bits_tile.cuh"

constexpr int TILE_ROW = 128;  // bytes: 64 elements of an input row
constexpr int INPUT_TILES = CHUNK / 64, PART_TILES = INPUT_TILES / WARPS_OF_CHUNK;
constexpr int INPUT_STAGES = 3;                  // one is multiplied, two are on their way
constexpr int UNITS = 2 * TOKENS * INPUT_TILES;  // of a chunk, four pieces of 16 bytes each

struct InputStage {
  alignas(1024) unsigned char tiles[INPUT_TILES][TOKENS * TILE_ROW];
};

struct Shared {
  InputStage inputs[INPUT_STAGES];
  WeightStage stages[STAGES];
  Meeting meeting;
  uint64 filled[INPUT_STAGES];
  int number;
};

// A unit: of an input row, the four pieces that lanes q = 0 to 3 multiply in one step. They become four pieces with
// a word for each lane. What does not exist is zeros.
// Grid: (ceil(num_chunks * UNITS / NUM_THREADS)), NUM_THREADS threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    lay_out_rows(InputStage* laid_out,  // [num_chunks]
                 const Element* input,  // [num_tokens, in_features]
                 int num_tokens, int in_features) {
  let_next_kernel_start();
  const int number = blockIdx.x * NUM_THREADS + threadIdx.x, chunk = number / UNITS, unit = number % UNITS;
  if (chunk >= ceil_div(in_features, CHUNK)) return;
  const int half = unit % 2, token = unit / 2 % TOKENS, tile = unit / (2 * TOKENS);
  const int step = tile % PART_TILES * 2 + half;
  const int first = chunk * CHUNK + tile / PART_TILES * (CHUNK / WARPS_OF_CHUNK) + step * PIECE;
  const Element* from = input + static_cast<int64>(token) * in_features;
  wait_for_previous_kernel();
  uint4 lanes[4];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    const int inner = first + q * PIECE_DIGITS;
    const bool exists = token < num_tokens && inner < in_features;
    lanes[q] = in_order_of_weights(exists ? load_in_order(from + inner) : make_uint4(0, 0, 0, 0));
  }
  unsigned char* to = laid_out[chunk].tiles[tile];
  const int at = token * TILE_ROW + half * 64;
  store_16(to + swizzled(at, TILE_ROW), make_uint4(lanes[0].x, lanes[1].x, lanes[2].x, lanes[3].x));
  store_16(to + swizzled(at + 16, TILE_ROW), make_uint4(lanes[0].y, lanes[1].y, lanes[2].y, lanes[3].y));
  store_16(to + swizzled(at + 32, TILE_ROW), make_uint4(lanes[0].z, lanes[1].z, lanes[2].z, lanes[3].z));
  store_16(to + swizzled(at + 48, TILE_ROW), make_uint4(lanes[0].w, lanes[1].w, lanes[2].w, lanes[3].w));
}

__device__ __forceinline__ uint64 input_descriptor(const InputStage& stage, int tile) {
  return matrix_descriptor(shared_address(stage.tiles[tile]), 16, 8 * TILE_ROW, TILE_ROW);
}

// The products of a chunk are added; those of its last two steps may still be under way.
__device__ __forceinline__ void multiply(WarpSums& warp, const InputStage& input, const Weights& weights,
                                         const PairScales& by, const Lane& lane) {
  uint32 a[2][2][ROW_TILES][4];  // of two steps
  const uint64 first = input_descriptor(input, lane.part * PART_TILES);
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    weights.widen(a[step % 2], step, by);
    fence_products();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint64 b = moved(first, step / 2 * TOKENS * TILE_ROW + step % 2 * 64 + half * 32);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        ::Product<TOKENS>::registers_shared(warp.sums[m], a[step % 2][half][m], b, true);
      }
    }
    commit_products();
    if (step + 1 < STEPS) wait_products<1>();
  }
}

// Grid: (thread blocks, no more than there are chunks), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_THREADS, BLOCKS)
    few_bits_warpgroups(Element* __restrict__ output,              // [num_tokens, out_features]
                        const unsigned char* __restrict__ digits,  // [out_features, in_features * WEIGHT_BITS / 8]
                        const __half* __restrict__ scales,         // [out_features, num_groups]
                        const __half* __restrict__ minimums,       // the same, or null
                        const Element* __restrict__ bias,          // [out_features], or null
                        const InputStage* laid_out,                // [ceil(in_features / CHUNK)]
                        float2* left_sums,  // [gridDim.x, ROW_TILES * TOKENS / 8, NUM_THREADS]
                        uint32* counters,   // [1 + gridDim.x], zero before and after
                        int num_tokens, int in_features, int out_features, int output_stride, int num_groups,
                        uint32 inverse) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < INPUT_STAGES; i++) init_barrier(shared_address(&shared.filled[i]), 1);
    publish_barriers();
  }
  const int number = draw_number(&shared.number, counters);
  const Task of = {output,       digits,     scales,      minimums,     bias,          nullptr,    left_sums,
                   counters + 1, num_tokens, in_features, out_features, output_stride, num_groups, inverse};
  const Share share(of.num_tiles(), of.num_chunks(), number);
  const int count = share.end - share.begin;
  const WeightCopy weight_copy(of);
  const auto bring_input = [&](int stage, int chunk) {
    const uint32 barrier = shared_address(&shared.filled[stage]);
    expect_bytes(barrier, sizeof(InputStage));
    copy_bulk(&shared.inputs[stage], laid_out + chunk, sizeof(InputStage), barrier, keep_in_cache());
  };

  // The weight is there from the beginning; the input may still be in the making.
  Walk ahead(share);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < count) weight_copy.copy(shared.stages[i], ahead.tile, ahead.chunk);
    commit_copies();
    ahead.advance();
  }
  wait_for_previous_kernel();
  Walk beside(share);  // of the input
#pragma unroll 1
  for (int i = 0; i < INPUT_STAGES - 1; i++) {
    if (i < count && threadIdx.x == 0) bring_input(i, beside.chunk);
    beside.advance();
  }
  Walk here(share);
  const Lane lane;
  Ending ending(of, number);
  WarpSums warp;
  warp.clear();
  GroupScales next_groups;
  if (count > 0) next_groups.load(of, lane, here.tile, here.chunk);
  int stage = 0, first_chunk = here.chunk;
  Ring<INPUT_STAGES> input;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // everybody's copies of weights are here, and nobody reads what is filled next
    if (i + INPUT_STAGES - 1 < count && threadIdx.x == 0) {
      bring_input(input.stage == 0 ? INPUT_STAGES - 1 : input.stage - 1, beside.chunk);
    }
    beside.advance();
    if (i + STAGES - 1 < count) {
      weight_copy.copy(shared.stages[stage == 0 ? STAGES - 1 : stage - 1], ahead.tile, ahead.chunk);
      ahead.advance();
    }
    commit_copies();
    const int tile = here.tile, chunk = here.chunk;
    here.advance();
    const PairScales by(next_groups);
    if (i + 1 < count) next_groups.load(of, lane, here.tile, here.chunk);
    const Weights weights(shared.stages[stage], lane);
    wait(shared_address(&shared.filled[input.stage]), input.parity);
    multiply(warp, shared.inputs[input.stage], weights, by, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    input.advance();
    wait_products<0>();  // NOTE: over a branch the compiler would have each product wait for the one before
    if (i + 1 < count && here.tile == tile) continue;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) settle(warp.sums[m]);
    ending.end_run(shared.meeting, warp, lane, of, share, tile, first_chunk, chunk + 1);
    warp.clear();
    first_chunk = here.chunk;
  }
}
