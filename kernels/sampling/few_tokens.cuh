// The token of a row that has no more tokens than a thread block has threads: the same as `choose_token` chooses,
// to the bit. Each token is compared with all others, which tells its place among them by likelihood (of equals the
// first one comes first); what the filters leave are the first places then, and nothing has to be searched for.

#pragma once

#include "sampling/choose_token.cuh"

struct FewShared {
  uint64 best[NUM_WARPS], sums[2][NUM_WARPS];
  alignas(16) uint32 keys[NUM_THREADS];
  uint32 weights[NUM_THREADS];  // by place
  bool is_kept[NUM_THREADS];    // by place
};

// Sum over the threads up to this one, and over all.
__device__ __forceinline__ uint64 scan_block(uint64 own, uint64 (&sums)[NUM_WARPS], uint64& total) {
  static_assert(NUM_WARPS <= WARP_SIZE, "a lane for each warp");
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  const uint64 through = scan_warp(own);
  if (lane == WARP_SIZE - 1) sums[warp] = through;
  __syncthreads();
  const uint64 warps_through = scan_warp(lane < NUM_WARPS ? sums[lane] : 0);
  total = __shfl_sync(FULL_WARP, warps_through, WARP_SIZE - 1);
  const uint64 before = __shfl_sync(FULL_WARP, warps_through, max(warp - 1, 0));
  return through + (warp > 0 ? before : 0);
}

// All threads call it, each with its own token's logit, those behind the last token with minus infinity. One calls
// `write(number)`.
template <typename Write>
__device__ __forceinline__ void choose_among_few(const RowParams& of_row, float logit, int count, uint64 random,
                                                 FewShared& shared, Write write) {
  const int number = threadIdx.x, lane = number % WARP_SIZE, warp = number / WARP_SIZE;
  uint64 best = max_of_warp(argmax_key(__fadd_rn(logit, 0.0f), number));  // of both zeros the positive one
  if (lane == 0) shared.best[warp] = best;
  __syncthreads();
  best = max_of_warp(lane < NUM_WARPS ? shared.best[lane] : 0);
  if (of_row.scale == 0.0f) {
    if (number == 0) write(argmax_row(best));
    return;
  }
  const TokenKeys keys{argmax_value(best), of_row.scale};
  const uint32 key = number < count ? keys.of(logit) : 0;
  shared.keys[number] = key;
  shared.weights[number] = 0;
  __syncthreads();
  int place = 0;
#pragma unroll 4
  for (int first = 0; first < count; first += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(shared.keys + first);
    const uint32 others[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; j++) place += others[j] > key || (others[j] == key && first + j < number);
  }
  const uint32 floor = of_row.min_key > 0 ? of_row.min_key - 1 : 0;
  const bool is_kept = key > floor && (of_row.top_k == 0 || place < of_row.top_k);
  uint32 weight = weight_of(is_kept ? key : 0);
  uint64 total;
  if (of_row.top_p != 1.0f) {
    if (is_kept) shared.weights[place] = weight;
    __syncthreads();
    const uint64 own = shared.weights[number];
    const uint64 through = scan_block(own, shared.sums[0], total);
    const double share = __dmul_rn(static_cast<double>(of_row.top_p), static_cast<double>(total));
    const uint64 needed = max(1ull, static_cast<uint64>(ceil(share)));
    shared.is_kept[number] = through - own < needed;
    __syncthreads();
    if (is_kept && !shared.is_kept[place]) weight = 0;
  }
  const uint64 through = scan_block(weight, shared.sums[1], total);
  const uint64 target = __umul64hi(random, total);
  if (total == 0) {
    if (number == 0) write(argmax_row(best));
  } else if (target >= through - weight && target < through) {
    write(number);
  }
}
