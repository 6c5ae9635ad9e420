// What the launches that do several layers of a decode step share: thread blocks, tokens and splits of a context,
// and rows of queries, keys and values.
//
// Whoever includes it has said HIDDEN, MIDDLE, NUM_HEADS and NUM_WARPS, or has defaults for them.

#pragma once

#include "common/mbarrier.cuh"
#include "common/place.cuh"
#include "common/row_pieces.cuh"

#ifndef NUM_BLOCKS  // one for each multiprocessor: the plan says how many the GPU has
#define NUM_BLOCKS 132
#endif
#ifndef TOKENS
#define TOKENS 1
#endif
#ifndef SPLITS
#define SPLITS 1
#endif

constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;  // that multiply
constexpr int NUM_KV_HEADS = NUM_HEADS / GROUP_SIZE;
constexpr int ATTENDED = NUM_HEADS * HEAD_SIZE;
constexpr int QKV_ROWS = ATTENDED + 2 * NUM_KV_HEADS * HEAD_SIZE;
constexpr int VECTORS = GROUP_SIZE + 2;  // of a KV head: its queries, its key, its value
constexpr int STEP = 4 * PIECE;          // inner elements that the lanes of a row hold at a time

// All warps that multiply.
__device__ __forceinline__ void sync_warps() { sync_named(1, NUM_THREADS); }
