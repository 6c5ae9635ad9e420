// What a thread block's sums of a tile are for the one that finishes it (common/stream_k.cuh).

#pragma once

#include "common/mbarrier.cuh"
#include "common/stream_k.cuh"

// Sums that thread blocks leave for others, each in a slot of its own, and whether they are there. `flags` are zero
// before and after a launch. A thread has COUNT sums; all of NUM_THREADS call this together.
template <int COUNT, int NUM_THREADS>
struct LeftSums {
  static constexpr int AT_ONCE = 4;  // slots that are read at the same time

  float4* slots;  // [gridDim.x, COUNT / 4, NUM_THREADS]
  uint32* flags;  // [gridDim.x]

  __device__ __forceinline__ float4* place(int thread_block, int i) const {
    return slots + (static_cast<int64>(thread_block) * COUNT + i) / 4 * NUM_THREADS + threadIdx.x;
  }

  __device__ __forceinline__ void leave(const float (&sums)[COUNT], int number) const {
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
      __stcg(place(number, i), make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
    }
    __threadfence();
    sync_named(1, NUM_THREADS);
    if (threadIdx.x == 0) raise_flag(flags + number);
  }

  // What the thread blocks from `first` to before `end` have left, once it is there.
  __device__ __forceinline__ void add(float (&sums)[COUNT], int first, int end) const {
    for (int from = first + threadIdx.x; from < end; from += NUM_THREADS) {
      await_flag(flags + from);
      flags[from] = 0;
    }
    sync_named(1, NUM_THREADS);
#pragma unroll 1
    for (int from = first; from < end; from += AT_ONCE) {
#pragma unroll
      for (int i = 0; i < COUNT; i += 4) {
        float4 more[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
          more[j] = from + j < end ? __ldcg(place(from + j, i)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
          sums[i] += more[j].x;
          sums[i + 1] += more[j].y;
          sums[i + 2] += more[j].z;
          sums[i + 3] += more[j].w;
        }
      }
    }
  }
};
