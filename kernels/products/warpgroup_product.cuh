// TOKENS tokens times SUMS rows of a weight over the inner dimension of a thread block, by warpgroups: one of them
// fetches, the others multiply. A warpgroup product has 64 rows on one side: tokens, or else rows of the weight.
// All of the weights and some of the tokens are in shared memory at a time, in chunks of 64 inner elements.
//
// NOTE: those that fetch do nothing else. A fence between copies and products may wait for all copies of its
// thread, also for those that are still to be multiplied; here it is the business of threads that copy nothing.

#pragma once

#include "common/activation.cuh"
#include "common/mbarrier.cuh"
#include "common/swizzled_tiles.cuh"

constexpr int SUMS = PAIRED ? 2 * COLUMNS : COLUMNS;  // of a token: rows of the weight of a thread block
constexpr bool TOKENS_ARE_64 = TOKENS == 64;
static_assert(TOKENS_ARE_64 || SUMS == 64, "one side of a warpgroup product");
constexpr int OTHER_SIDE = TOKENS_ARE_64 ? SUMS : TOKENS;

constexpr int CHUNKS = IN_FEATURES / (CLUSTER * TILE_INNER);
static_assert(IN_FEATURES % (CLUSTER * TILE_INNER) == 0, "every thread block gets whole chunks");
constexpr bool AT_ONCE = STAGES >= CHUNKS;  // nothing is fetched into a place a second time
static_assert(STAGES <= CHUNKS, "every stage is used");
static_assert(AT_ONCE || STAGES > WARPGROUPS, "a chunk is fetched while others are multiplied");

constexpr int FETCHING_GROUP = WARPGROUPS;
constexpr int NUM_THREADS = (WARPGROUPS + 1) * GROUP_THREADS;

struct Tiles {
  unsigned char weights[CHUNKS][SUMS * TILE_ROW];
  unsigned char tokens[STAGES][TOKENS * TILE_ROW];
};

struct Barriers {
  uint64 filled[STAGES];
  uint64 emptied[STAGES];
};

__device__ __forceinline__ uint32 barrier_address(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// By one thread, before all synchronise.
__device__ __forceinline__ void init_barriers(Barriers& barriers) {
  for (int i = 0; i < STAGES; i++) {
    init_barrier(barrier_address(barriers.filled[i]), GROUP_THREADS);
    init_barrier(barrier_address(barriers.emptied[i]), GROUP_THREADS);
  }
}

// SUMS rows in NUM_PARTS pieces that are `part_stride` elements apart.
template <int NUM_PARTS>
__device__ __forceinline__ void fetch_weights(Tiles& tiles, const Element* weight, int64 part_stride) {
  constexpr int PART = SUMS / NUM_PARTS;
  const TileCopy copy(weight, IN_FEATURES);
#pragma unroll 1
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
#pragma unroll
    for (int i = 0; i < NUM_PARTS; i++) {
      TileCopy part = copy;
      part.from += i * part_stride;
      part.copy<PART>(tiles.weights[chunk] + i * PART * TILE_ROW, chunk * TILE_INNER, IN_FEATURES, PART);
    }
  }
}

// Rows from `num_tokens` on become zeros. Who finds a stage filled finds the weights as well.
__device__ __forceinline__ void fetch_tokens(Tiles& tiles, Barriers& barriers, const TileCopy& copy,
                                             int num_tokens) {
  Ring<STAGES> ring;
#pragma unroll 1
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    if (!AT_ONCE) wait(barrier_address(barriers.emptied[ring.stage]), ring.parity ^ 1);
    copy.copy<TOKENS>(tiles.tokens[ring.stage], chunk * TILE_INNER, IN_FEATURES, num_tokens);
    arrive_when_copied(barrier_address(barriers.filled[ring.stage]));
    ring.advance();
  }
}

// Every WARPGROUPS-th chunk, from that of the warpgroup's number on.
__device__ __forceinline__ void multiply(float (&sums)[OTHER_SIDE / 2], const Tiles& tiles,
                                         const Barriers& barriers, int group) {
  const uint64 all_tokens = tile_descriptor(tiles.tokens[0]), all_weights = tile_descriptor(tiles.weights[0]);
  int stage = group, before = 0;
  uint32 parity = 0;
#pragma unroll 1
  for (int chunk = group; chunk < CHUNKS; chunk += WARPGROUPS) {
    wait(barrier_address(barriers.filled[stage]), parity);
    show_to_products();
    fence_products();
    const uint64 tokens = moved(all_tokens, stage * TOKENS * TILE_ROW);
    const uint64 weights = moved(all_weights, chunk * SUMS * TILE_ROW);
    multiply_tiles<OTHER_SIDE>(sums, TOKENS_ARE_64 ? tokens : weights, TOKENS_ARE_64 ? weights : tokens);
    commit_products();
    if (!AT_ONCE) {
      wait_products<1>();
      if (chunk != group) arrive(barrier_address(barriers.emptied[before]));
      before = stage;
    }
    stage += WARPGROUPS;
    if (stage >= STAGES) {
      stage -= STAGES;
      parity ^= 1;
    }
  }
  wait_products<0>();
  settle(sums);
}
