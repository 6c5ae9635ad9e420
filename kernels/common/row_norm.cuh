// Sums and maxima over all threads of a thread block, and the norm of a row whose pieces of 16 bytes lie in their
// registers.

#pragma once

#include "common/norm_kinds.cuh"
#include "common/row.cuh"

constexpr int MAX_WARPS = 32;  // of a thread block

// Every thread gets what `of_lanes` makes of the numbers of all threads, a warp at a time and then of those; zeros
// beside them change nothing. `of_warp` is shared memory of this one alone, the number of threads a multiple of 32.
template <typename OfLanes>
__device__ __forceinline__ float block_reduce(float x, float (&of_warp)[MAX_WARPS], OfLanes of_lanes) {
  x = of_lanes(x);
  if (threadIdx.x % WARP_SIZE == 0) of_warp[threadIdx.x / WARP_SIZE] = x;
  __syncthreads();
  const int num_warps = blockDim.x / WARP_SIZE;
  return of_lanes(threadIdx.x % WARP_SIZE < num_warps ? of_warp[threadIdx.x % WARP_SIZE] : 0.0f);
}

__device__ __forceinline__ float block_sum(float x, float (&of_warp)[MAX_WARPS]) {
  return block_reduce(x, of_warp, [](float of_lane) { return warp_sum(of_lane); });
}

// Of numbers that are not below zero.
__device__ __forceinline__ float block_max(float x, float (&of_warp)[MAX_WARPS]) {
  return block_reduce(x, of_warp, [](float of_lane) { return warp_max(of_lane); });
}

struct NormNumbers {
  Row scales, shifts;

  __device__ __forceinline__ void load(const Element* weight, const Element* bias, int at) {
    scales = as_row(load_16(weight + at));
    if (bias != nullptr) shifts = as_row(load_16(bias + at));
  }
};

// This thread's part of a row, zeros where it has none; for all threads of the thread block.
template <int KIND>
__device__ __forceinline__ Row norm_row(const Row& row, const NormNumbers& numbers, bool has_piece, int width,
                                        float epsilon) {
  __shared__ float sums[2][MAX_WARPS];
  float values[ROW_ELEMENTS];
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) values[i] = to_float(row.elements[i]);
  float mean = 0.0f;
  if (KIND == LAYER_NORM) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) sum += values[i];
    mean = block_sum(sum, sums[0]) / width;
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    if (has_piece) squares += (values[i] - mean) * (values[i] - mean);
  }
  const float factor = rsqrtf(block_sum(squares, sums[1]) / width + epsilon);
  Row results;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float scale = to_float(numbers.scales.elements[i]), shift = to_float(numbers.shifts.elements[i]);
    results.elements[i] = from_float<Element>(scaled_by_norm<KIND>((values[i] - mean) * factor, scale, shift));
  }
  return results;
}
