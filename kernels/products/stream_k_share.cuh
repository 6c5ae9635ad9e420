// Which chunks of which tiles a thread block multiplies, and how parts of a tile become one (Stream-K, Osama et al.
// 2023, arXiv 2301.03598).
//
// A tile is some rows of the weight, a chunk of it 64 inner elements. The chunks of all tiles are counted through
// and every thread block has equally many, so that all of them are done at the same time whatever the weight's
// size. A tile that lies with several thread blocks is finished by the one that has its end; the others leave their
// sums. What a thread block leaves it makes first, and what it has to wait for last, so that there is hardly a
// wait. It waits for thread blocks with smaller numbers alone, which have started before it.

#pragma once

#include "products/swizzled_tiles.cuh"

constexpr int CHUNKS = IN_FEATURES / TILE_INNER;  // of a tile
static_assert(IN_FEATURES % TILE_INNER == 0, "whole chunks");
constexpr int MAX_LOOKS = 1 << 26;  // some ten seconds

// Chunks, counted through all tiles.
struct Range {
  int begin, end;
};

// Where the chunks of the thread block with this number lie.
struct Share {
  const int total;  // chunks of all tiles
  const int number, begin, end;

  __device__ __forceinline__ Share(int num_tiles, int its_number)
      : total(num_tiles * CHUNKS), number(its_number), begin(first_of(number)), end(first_of(number + 1)) {}

  __device__ __forceinline__ int first_of(int thread_block) const {
    return static_cast<int>(static_cast<int64>(total) * thread_block / gridDim.x);
  }

  // In the order in which they are made: 0: of a tile that is finished elsewhere; 1: whole tiles; 2: the rest of a
  // tile that others have begun. Any of them may be empty.
  __device__ __forceinline__ Range part(int i) const {
    const int last = end - end % CHUNKS, whole = min(round_up(begin, CHUNKS), last);
    if (i == 0) return {max(begin, last), end};
    if (i == 1) return {whole, last};
    return {begin, max(begin, whole)};
  }
};

// Goes through a share, chunk by chunk.
struct Walk {
  const Share& share;
  int part = 0;
  Range range;

  __device__ __forceinline__ explicit Walk(const Share& its) : share(its), range(its.part(0)) { skip_empty(); }

  __device__ __forceinline__ int tile() const { return range.begin / CHUNKS; }
  __device__ __forceinline__ int chunk() const { return range.begin % CHUNKS; }
  __device__ __forceinline__ void advance() {
    range.begin++;
    skip_empty();
  }
  __device__ __forceinline__ void skip_empty() {
    while (range.begin == range.end && part < 2) range = share.part(++part);
  }
};

// Sums that thread blocks leave for others, each in a slot of its own, and whether they are there. `flags` are zero
// before and after a launch. A thread has BLOCKS times COUNT sums; all of NUM_THREADS call this together.
template <int BLOCKS, int COUNT, int NUM_THREADS>
struct LeftSums {
  float4* slots;  // [gridDim.x, BLOCKS * COUNT / 4, NUM_THREADS]
  uint32* flags;  // [gridDim.x]

  __device__ __forceinline__ float4* place(int thread_block, int block, int i) const {
    return slots + (static_cast<int64>(thread_block) * BLOCKS * COUNT + block * COUNT + i) / 4 * NUM_THREADS +
           threadIdx.x;
  }

  __device__ __forceinline__ void leave(const float (&sums)[BLOCKS][COUNT], int number) const {
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
      for (int i = 0; i < COUNT; i += 4) {
        const float* four = sums[block] + i;
        __stcg(place(number, block, i), make_float4(four[0], four[1], four[2], four[3]));
      }
    }
    __threadfence();
    sync_named(1, NUM_THREADS);
    if (threadIdx.x == 0) {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags + number), "r"(1u) : "memory");
    }
  }

  // What the thread block `from` has left, once it is there.
  __device__ __forceinline__ void add(float (&sums)[BLOCKS][COUNT], int from) const {
    if (threadIdx.x == 0) await(flags + from);
    sync_named(1, NUM_THREADS);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
#pragma unroll
      for (int i = 0; i < COUNT; i += 4) {
        const float4 more = __ldcg(place(from, block, i));
        sums[block][i] += more.x;
        sums[block][i + 1] += more.y;
        sums[block][i + 2] += more.z;
        sums[block][i + 3] += more.w;
      }
    }
    if (threadIdx.x == 0) flags[from] = 0;
  }

  __device__ __forceinline__ static void await(const uint32* flag) {
    uint32 there = 0;
#pragma unroll 1
    for (int looks = 0; there == 0; looks++) {
      if (looks == MAX_LOOKS) __trap();  // an error, instead of a GPU that never answers
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
    }
  }
};
