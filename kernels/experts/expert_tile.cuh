// A tile of pairs that have an expert in common, as group_pairs.cu leaves it.

#pragma once

#include "common/common.cuh"
#include "common/dependent_launch.cuh"

// The kernel before makes the rows of the input, or the tiles. Where it is the rows, tiles are known before it
// ends: it has waited for what made them before it let this one start.
__device__ __forceinline__ void wait_for_tiles(int tiles_are_known) {
  if (!tiles_are_known) wait_for_previous_kernel();
  let_next_kernel_start();
}

struct ExpertTile {
  int expert, first, count;

  __device__ __forceinline__ explicit ExpertTile(int4 packed)
      : expert(packed.x), first(packed.y), count(packed.z) {}

  // The expert's part of `weight` [num_experts, num_rows, in_features].
  template <typename T>
  __device__ __forceinline__ const T* weights(const T* weight, int num_rows, int in_features) const {
    return weight + static_cast<int64>(expert) * num_rows * in_features;
  }
};
