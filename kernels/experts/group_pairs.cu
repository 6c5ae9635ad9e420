// Pairs of a token and one of its experts, expert by expert, so that those who have an expert in common read it
// together; and the tiles in which they are multiplied, none of which has more than `tile_rows` pairs or a second
// expert. Pairs of an expert stay in their order.
//
// A thread block has an expert. It counts the pairs of all of them, so that it knows where its own begin, and waits
// for no other; the list is short, and in the L2 cache. How many tiles there are is known to no one but the GPU:
// room is for as many as there can be, and what is left over has no pairs.

#include "common/common.cuh"
#include "common/dependent_launch.cuh"

constexpr int MOST_EXPERTS = 1024;
constexpr int NUM_WARPS = 8;
constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;

__device__ __forceinline__ int sum_of_warp(int x) {
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL_WARP, x, step);
  return x;
}

// What `counts` [NUM_WARPS] of the warps before this one come to.
__device__ __forceinline__ int sum_before(const int* counts, int warp) {
  int sum = 0;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) sum += w < warp ? counts[w] : 0;
  return sum;
}

// Grid: (num_experts), NUM_THREADS threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    group_pairs(int* __restrict__ order,   // [num_pairs]: pairs, expert by expert
                int4* __restrict__ tiles,  // [num_tiles]: expert, its first place in `order`, pairs, 0
                const int* experts,        // [num_pairs], which the kernel before may have made
                int num_pairs, int num_experts, int tile_rows, int num_tiles) {
  __shared__ int counts[MOST_EXPERTS];
  __shared__ int pairs_before[NUM_WARPS], tiles_before[NUM_WARPS], found[NUM_WARPS];
  const int expert = blockIdx.x, lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  let_next_kernel_start();
  for (int i = threadIdx.x; i < num_experts; i += NUM_THREADS) counts[i] = 0;
  __syncthreads();
  wait_for_previous_kernel();
  for (int pair = threadIdx.x; pair < num_pairs; pair += NUM_THREADS) atomicAdd(&counts[__ldcg(experts + pair)], 1);
  __syncthreads();

  int pairs = 0, whole = 0;
  for (int i = threadIdx.x; i < expert; i += NUM_THREADS) {
    pairs += counts[i];
    whole += ceil_div(counts[i], tile_rows);
  }
  pairs = sum_of_warp(pairs);
  whole = sum_of_warp(whole);
  if (lane == 0) {
    pairs_before[warp] = pairs;
    tiles_before[warp] = whole;
  }
  // Each warp has a run of pairs, whose order it keeps.
  const int run = round_up(ceil_div(num_pairs, NUM_WARPS), WARP_SIZE);
  const int begin = warp * run, end = begin + run < num_pairs ? begin + run : num_pairs;
  int mine = 0;
  for (int at = begin; at < end; at += WARP_SIZE) {
    mine += __popc(__ballot_sync(FULL_WARP, at + lane < end && __ldcg(experts + at + lane) == expert));
  }
  if (lane == 0) found[warp] = mine;
  __syncthreads();

  const int count = counts[expert], first = sum_before(pairs_before, NUM_WARPS);
  const int first_tile = sum_before(tiles_before, NUM_WARPS), behind = first_tile + ceil_div(count, tile_rows);
  for (int i = first_tile + threadIdx.x; i < behind; i += NUM_THREADS) {
    const int done = (i - first_tile) * tile_rows;
    tiles[i] = make_int4(expert, first + done, count - done < tile_rows ? count - done : tile_rows, 0);
  }
  if (expert == num_experts - 1) {
    for (int i = behind + threadIdx.x; i < num_tiles; i += NUM_THREADS) tiles[i] = make_int4(0, 0, 0, 0);
  }
  int next = first + sum_before(found, warp);
  for (int at = begin; at < end; at += WARP_SIZE) {
    const bool is_mine = at + lane < end && __ldcg(experts + at + lane) == expert;
    const uint32 all = __ballot_sync(FULL_WARP, is_mine);
    if (is_mine) order[next + __popc(all & ((1u << lane) - 1))] = at + lane;
    next += __popc(all);
  }
}
