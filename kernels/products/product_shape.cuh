// A product over a few tokens: its sizes. How its weights come, and how warps share the inner dimension, is not
// known here.

#pragma once

#include "common/common.cuh"
#include "common/dependent_launch.cuh"
#include "common/norm_kinds.cuh"
#include "common/row_pieces.cuh"

#ifndef IN_FEATURES
#define IN_FEATURES 768
#endif
#ifndef NUM_WARPS
#define NUM_WARPS 6
#endif
#ifndef TOKEN_TILES
#define TOKEN_TILES 1
#endif
#ifndef NORM
#define NORM 0
#endif

constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;  // that multiply
constexpr int MAX_TOKENS = 8 * TOKEN_TILES;
constexpr int STEP = 4 * PIECE;  // inner elements that the lanes of a row hold at a time

// What the kernel before has just written: past L1, which may hold what was there before.
__device__ __forceinline__ uint4 load_fresh_16(const void* address) {
  return __ldcg(static_cast<const uint4*>(address));
}

__device__ __forceinline__ Element load_fresh(const Element* address) { return __ldcg(address); }
