// output = input * weight^T + bias for up to 64 rows and a weight of any size in 8 or 4 bits, on tensor cores.
//
// The weight streams through a ring in shared memory as it is stored, in chunks of 128 bytes of the rows of a tile
// (few_bits_tile.cuh) with all input rows' same elements beside them, every thread block with equally many chunks
// (products/stream_k_share.cuh). On Hopper few_bits_warpgroups.cu does the same by products of warpgroups.
//
// Idea of 4-bit weights that are widened in registers, from a ring, for batches: Marlin (Frantar et al. 2024, arXiv
// 2408.11743).

#include "quantized/few_bits_tokens.cuh"

struct Stage {
  WeightStage weights;
  TokenStage tokens;
};

struct Shared {
  Stage stages[STAGES];
  Meeting meeting;
  int number;
};

// What a thread copies of a chunk of the input. What does not exist becomes zeros.
struct TokenCopy {
  static constexpr int AT_ONCE = NUM_THREADS / TOKEN_PIECES, PASSES = ceil_div(TOKENS, AT_ONCE);
  const Element* from;
  int token, at, place;  // of its first piece: input row, element of a chunk, byte of a stage
  int num_tokens, in_features;

  __device__ __forceinline__ explicit TokenCopy(const Task& of)
      : token(threadIdx.x / TOKEN_PIECES), num_tokens(of.num_tokens), in_features(of.in_features) {
    at = threadIdx.x % TOKEN_PIECES * PIECE;
    from = settled(of.input + static_cast<int64>(token) * in_features + at);
    place = settled(token_place(token, threadIdx.x % TOKEN_PIECES));
  }

  __device__ __forceinline__ void copy(Stage& stage, int chunk) const {
    const int tokens = chunk * CHUNK + at < in_features ? num_tokens - token : 0;
    const Element* first = from + chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
      if (TOKENS % AT_ONCE != 0 && token + i * AT_ONCE >= TOKENS) break;
      copy_16_async(stage.tokens.bytes + place + i * AT_ONCE * TOKEN_PIECES * 16, first, i * AT_ONCE < tokens);
      first += AT_ONCE * in_features;
    }
  }
};

// Grid: (thread blocks, no more than there are chunks), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_THREADS, BLOCKS)
    few_bits_linear(Element* __restrict__ output,              // [num_tokens, out_features]
                    const unsigned char* __restrict__ digits,  // [out_features, in_features * WEIGHT_BITS / 8]
                    const __half* __restrict__ scales,         // [out_features, num_groups]
                    const __half* __restrict__ minimums,       // the same, or null
                    const Element* __restrict__ bias,          // [out_features], or null
                    const Element* input,                      // [num_tokens, in_features]
                    float2* left_sums,                         // [gridDim.x, ROW_TILES * TOKENS / 8, NUM_THREADS]
                    uint32* counters,                          // [1 + gridDim.x], zero before and after
                    int num_tokens, int in_features, int out_features, int output_stride, int num_groups,
                    uint32 inverse) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int number = draw_number(&shared.number, counters);
  const Task of = {output,       digits,     scales,      minimums,     bias,          input,      left_sums,
                   counters + 1, num_tokens, in_features, out_features, output_stride, num_groups, inverse};
  const Share share(of.num_tiles(), of.num_chunks(), number);
  const int count = share.end - share.begin;
  const WeightCopy weights(of);
  const TokenCopy tokens(of);

  // The weight is there from the beginning; the input may still be in the making.
  Walk ahead(share);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1 && i < count; i++) {
    weights.copy(shared.stages[i].weights, ahead.tile, ahead.chunk);
    ahead.advance();
  }
  wait_for_previous_kernel();
  Walk beside(share);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < count) tokens.copy(shared.stages[i], beside.chunk);
    commit_copies();
    beside.advance();
  }

  Walk here(share);
  const Lane lane;
  Ending ending(of, number);
  WarpSums warp;
  warp.clear();
  GroupScales groups, next_groups;
  if (count > 0) next_groups.load(of, lane, here.tile, here.chunk);
  int stage = 0, first_chunk = here.chunk;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // everybody's copies are here, and nobody reads the stage that is filled next
    if (i + STAGES - 1 < count) {
      Stage& next = shared.stages[stage == 0 ? STAGES - 1 : stage - 1];
      weights.copy(next.weights, ahead.tile, ahead.chunk);
      tokens.copy(next, ahead.chunk);
      ahead.advance();
    }
    commit_copies();
    const int tile = here.tile, chunk = here.chunk;
    here.advance();
    groups = next_groups;
    if (i + 1 < count) next_groups.load(of, lane, here.tile, here.chunk);
    multiply(warp, shared.stages[stage].weights, shared.stages[stage].tokens, groups, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if (i + 1 < count && here.tile == tile) continue;
    ending.end_run(shared.meeting, warp, lane, of, share, tile, first_chunk, chunk + 1);
    warp.clear();
    first_chunk = here.chunk;
  }
}
