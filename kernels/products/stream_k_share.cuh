// Which chunks of which tiles a thread block multiplies, and how parts of a tile become one (Stream-K, Osama et al.
// 2023, arXiv 2301.03598).
//
// A tile is some rows of the weight, a chunk of it some of their inner elements. The chunks of all tiles are
// counted through and every thread block has equally many, so that all of them are done at the same time whatever
// the weight's size. A tile that lies with several thread blocks is finished by the one that has its end; the
// others leave their sums. What a thread block leaves it makes first, and what it has to wait for last, so that
// there is hardly a wait. It waits for thread blocks with smaller numbers alone, which have started before it.

#pragma once

#include "common/mbarrier.cuh"

constexpr int MAX_LOOKS = 1 << 26;  // some ten seconds

// Chunks, counted through all tiles.
struct Range {
  int begin, end;
};

// Where the chunks of the thread block with this number lie.
struct Share {
  const int chunks;  // of a tile
  const int total;   // of all tiles
  const int number, begin, end;

  __device__ __forceinline__ Share(int num_tiles, int chunks_of_tile, int its_number)
      : chunks(chunks_of_tile),
        total(num_tiles * chunks),
        number(its_number),
        begin(first_of(number)),
        end(first_of(number + 1)) {}

  __device__ __forceinline__ int first_of(int thread_block) const {
    return static_cast<int>(static_cast<int64>(total) * thread_block / gridDim.x);
  }

  // The first thread block with chunks of the tile in which this one begins.
  __device__ __forceinline__ int first_with(int first_chunk) const {
    int from = number;
    while (first_of(from) > first_chunk) from--;
    return from;
  }

  // In the order in which they are made: 0: of a tile that is finished elsewhere; 1: whole tiles; 2: the rest of a
  // tile that others have begun. Any of them may be empty.
  __device__ __forceinline__ Range part(int i) const {
    const int last = end - end % chunks, whole = min(round_up(begin, chunks), last);
    if (i == 0) return {max(begin, last), end};
    if (i == 1) return {whole, last};
    return {begin, max(begin, whole)};
  }
};

// Goes through a share, chunk by chunk. NOTE: counts along, as divisions take longer than what a few chunks cost.
struct Walk {
  const Share& share;
  int part = 0;
  Range range;
  int tile, chunk;

  __device__ __forceinline__ explicit Walk(const Share& its) : share(its), range(its.part(0)) {
    find();
    skip_empty();
  }

  // `count` chunks further, all of the same tile.
  __device__ __forceinline__ void advance(int count = 1) {
    range.begin += count;
    chunk += count;
    if (chunk == share.chunks) {
      chunk = 0;
      tile++;
    }
    skip_empty();
  }
  __device__ __forceinline__ void skip_empty() {
    while (range.begin == range.end && part < 2) {
      range = share.part(++part);
      find();
    }
  }
  __device__ __forceinline__ void find() {
    tile = range.begin / share.chunks;
    chunk = range.begin % share.chunks;
  }
};

// --- what thread blocks leave for others ------------------------------------------------------------------------

// By one thread, after all of its thread block have written, fenced and met.
__device__ __forceinline__ void raise_flag(uint32* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1u) : "memory");
}

__device__ __forceinline__ void await_flag(const uint32* flag) {
  uint32 there = 0;
#pragma unroll 1
  for (int looks = 0; there == 0; looks++) {
    if (looks == MAX_LOOKS) __trap();  // an error, instead of a GPU that never answers
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
  }
}

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
