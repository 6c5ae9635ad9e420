// What route_tokens.cu and group_pairs.cu do one after the other, in one launch, for so few tokens that a thread
// block has all of their pairs in shared memory.
//
// A warp has a token at a time; then a thread has an expert, and goes through all pairs for its own.

#include "common/dependent_launch.cuh"
#include "experts/route.cuh"

constexpr int MOST_PAIRS = 512;
constexpr int NUM_THREADS = 1024;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
static_assert(NUM_EXPERTS <= NUM_THREADS, "a thread has an expert");

// What `x` comes to in the lanes before this one.
__device__ __forceinline__ int sum_before(int x, int lane) {
  int sum = x;
#pragma unroll
  for (int step = 1; step < WARP_SIZE; step *= 2) {
    const int other = __shfl_up_sync(FULL_WARP, sum, step);
    if (lane >= step) sum += other;
  }
  return sum - x;
}

// Grid: (1), NUM_THREADS threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    route_few(int* __restrict__ experts,           // [num_tokens, PER_TOKEN], the most likely first
              float* __restrict__ weights,         // [num_tokens, PER_TOKEN]
              int* __restrict__ order,             // [num_pairs]: pairs, expert by expert
              int4* __restrict__ tiles,            // [num_tiles]: expert, its first place in `order`, pairs, 0
              const Element* __restrict__ logits,  // [num_tokens, NUM_EXPERTS], which the kernel before may make
              int num_tokens, int tile_rows, int num_tiles) {
  __shared__ int expert_of[MOST_PAIRS];
  __shared__ int pairs_of[NUM_WARPS], tiles_of[NUM_WARPS];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, num_pairs = num_tokens * PER_TOKEN;
  for (int token = warp; token < num_tokens; token += NUM_WARPS) {
    const Route found = route(logits + token * NUM_EXPERTS);
    const int pair = token * PER_TOKEN + lane;
    if (lane < PER_TOKEN) {
      experts[pair] = expert_of[pair] = found.expert;
      weights[pair] = found.weight;
    }
  }
  __syncthreads();

  const int expert = threadIdx.x;
  int count = 0;
  for (int pair = 0; expert < NUM_EXPERTS && pair < num_pairs; pair++) count += expert_of[pair] == expert;
  const int its_tiles = ceil_div(count, tile_rows);
  int place = sum_before(count, lane), tile = sum_before(its_tiles, lane), all_tiles = 0;
  if (lane == WARP_SIZE - 1) {
    pairs_of[warp] = place + count;
    tiles_of[warp] = tile + its_tiles;
  }
  __syncthreads();
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) {
    place += w < warp ? pairs_of[w] : 0;
    tile += w < warp ? tiles_of[w] : 0;
    all_tiles += tiles_of[w];
  }
  for (int done = 0; done < count; done += tile_rows) {
    tiles[tile++] = make_int4(expert, place + done, count - done < tile_rows ? count - done : tile_rows, 0);
  }
  for (int pair = 0; count > 0 && pair < num_pairs; pair++) {
    if (expert_of[pair] == expert) order[place++] = pair;
  }
  for (int i = all_tiles + threadIdx.x; i < num_tiles; i += NUM_THREADS) tiles[i] = make_int4(0, 0, 0, 0);
}
