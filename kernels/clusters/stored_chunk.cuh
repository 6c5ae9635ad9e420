// A chunk of a weight in shared memory, as products by clusters bring it: 64 inner elements of 16 bits or of a
// byte, or 128 of 4 bits. How a lane reads of few bits what it multiplies, and how that becomes 16 bits, with
// scales of groups in it; a scale of a whole row is applied to sums.
//
// Rows of few bits have 64 bytes there, whose 16-byte pieces change places as `swizzled` (wgmma.cuh) says, so that
// lanes that read at the same time fall into different banks.

#pragma once

#include "common/async_copy.cuh"
#include "common/swizzled_tiles.cuh"
#include "quantized/weight_kinds.cuh"

#ifndef SCALES
#define SCALES 0  // of few bits. 0: one a row; 1: one for each group of a row; 2: and a minimum
#endif
#ifndef SCALE_GROUP
#define SCALE_GROUP 128  // elements of a group
#endif

constexpr int TOKEN_TILES = WEIGHT_BITS == 4 ? 2 : 1;  // of a chunk
constexpr int INNER = TOKEN_TILES * TILE_INNER;        // elements of a chunk
constexpr int WEIGHT_ROW = INNER * WEIGHT_BITS / 8;    // bytes of a row of a chunk
static_assert(SCALE_GROUP % 16 == 0 && (INNER % SCALE_GROUP == 0 || SCALE_GROUP % INNER == 0),
              "a step's weights have a scale in common, and chunks have whole groups or parts of one");
constexpr int STRIP_ROWS = 16;                             // of a warp
constexpr int GROUP_ROWS = 64, GROUPS = FEW_BITS ? 2 : 1;  // rows of a warpgroup, and warpgroups that multiply
constexpr int ROWS = GROUPS * GROUP_ROWS;                  // of the weight, of a tile

#if WEIGHT_KIND != WHOLE_WEIGHTS

constexpr int STEPS = INNER / 16, STEPS_OF_TILE = TILE_INNER / 16;  // products of a chunk, of a tile of tokens
constexpr int STEP_BYTES = WEIGHT_ROW / STEPS;                      // of a row
constexpr int GROUPS_OF_CHUNK = SCALES && SCALE_GROUP < INNER ? INNER / SCALE_GROUP : 1;
constexpr int CHUNKS_OF_GROUP = SCALE_GROUP > INNER ? SCALE_GROUP / INNER : 1;
constexpr int GROUP_STEPS = STEPS / GROUPS_OF_CHUNK;
constexpr int SCALE_PIECE =
    16 / static_cast<int>(sizeof(__half));  // groups of a row whose scales are copied together
constexpr int PIECE_CHUNKS = SCALE_PIECE / GROUPS_OF_CHUNK * CHUNKS_OF_GROUP;  // that a piece has the scales of
static_assert(!SCALES || SCALE_PIECE % GROUPS_OF_CHUNK == 0, "a chunk's scales are in one piece");

// Scales of all rows of a tile for PIECE_CHUNKS chunks, and then minimums.
struct ScalePieces {
  alignas(16) __half of_rows[SCALES ? SCALES : 1][ROWS][SCALE_PIECE];
};

// Of groups: where scales come from. By a whole warp.
struct ScaleCopy {
  const __half *scales, *minimums;  // [rows of the weight, groups]; minimums with SCALES 2
  int num_groups;                   // whole pieces

  // Those of a chunk and of the others of its piece; `row_of(i)` is where row i of the tile is in the weight.
  template <typename RowOf>
  __device__ __forceinline__ void copy(ScalePieces& to, int chunk, RowOf row_of) const {
    const int group = chunk / PIECE_CHUNKS * SCALE_PIECE;
#pragma unroll
    for (int i = threadIdx.x % WARP_SIZE; i < ROWS; i += WARP_SIZE) {
      const int64 at = static_cast<int64>(row_of(i)) * num_groups + group;
      copy_16_async(to.of_rows[0][i], scales + at);
      if (SCALES == 2) copy_16_async(to.of_rows[SCALES - 1][i], minimums + at);
    }
  }
};

// A chunk's scales of a lane's two rows, each with its minimum above it.
struct ChunkScales {
  uint32 pairs[2][GROUPS_OF_CHUNK];

  __device__ __forceinline__ void load(const ScalePieces& from, int chunk) {
    if (SCALES == 0) return;
    const int row = threadIdx.x / WARP_SIZE * STRIP_ROWS + threadIdx.x % WARP_SIZE / 4;
    const int first = chunk % PIECE_CHUNKS * GROUPS_OF_CHUNK / CHUNKS_OF_GROUP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int j = 0; j < GROUPS_OF_CHUNK; j++) {
        const uint32 scale = __half_as_ushort(from.of_rows[0][row + 8 * i][first + j]);
        pairs[i][j] =
            SCALES == 2 ? scale | __half_as_ushort(from.of_rows[SCALES - 1][row + 8 * i][first + j]) << 16 : scale;
      }
    }
  }

  // A pair of weights of row `i`.
  __device__ __forceinline__ uint32 scaled(uint32 weights, int i, int group) const {
    using Of = Pairs<Element>;
    if (SCALES == 0) return weights;
    const uint32 pair = pairs[i][group];
    const uint32 by = twice<Element>(__ushort_as_half(pair & 0xffff), WEIGHT_FACTOR);
    if (SCALES == 1) return Of::bits(__hmul2(Of::of(weights), Of::of(by)));
    const uint32 more = twice<Element>(__ushort_as_half(pair >> 16), 1.0f);
    return Of::bits(__hfma2(Of::of(weights), Of::of(by), Of::of(more)));
  }
};

// What a lane multiplies of a part of a chunk, 64 inner elements: of each step four weights of its row g, then of
// the eighth row after it, as `a` of mma.cuh has them: 2q, 2q + 1, 2q + 8 and 2q + 9.
using Operands = uint32[STEPS_OF_TILE][4];

struct StoredRows {
  int row, lane_byte;  // where a lane's row begins in a chunk; its own byte in what it reads at a time

  __device__ __forceinline__ StoredRows() {
    const int lane = threadIdx.x % WARP_SIZE;
    row = swizzled((threadIdx.x / WARP_SIZE * STRIP_ROWS + lane / 4) * WEIGHT_ROW, WEIGHT_ROW);
    lane_byte = lane % 4 * (WEIGHT_BITS == 8 ? 2 : 0x1111);
    asm volatile("" : "+r"(row), "+r"(lane_byte));  // else it is worked out again and again
  }

  // Part `part` of a chunk.
  __device__ __forceinline__ void load(Operands& a, const unsigned char* weights, int part,
                                       const ChunkScales& scales) const {
    uint32 words[STEPS_OF_TILE][2];
#pragma unroll
    for (int step = 0; step < STEPS_OF_TILE; step++) {
      const int at = (part * STEPS_OF_TILE + step) * STEP_BYTES;
      const unsigned char* from = weights + (row ^ at / 16 * 16) + at % 16;
#pragma unroll
      for (int i = 0; i < 2; i++, from += 8 * WEIGHT_ROW) words[step][i] = read(from);
    }
#pragma unroll
    for (int step = 0; step < STEPS_OF_TILE; step++) {
      const int group = (part * STEPS_OF_TILE + step) / GROUP_STEPS;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        uint32 pairs[2];
        widen(pairs, words[step][i]);
        a[step][i] = scales.scaled(pairs[0], i, group), a[step][2 + i] = scales.scaled(pairs[1], i, group);
      }
    }
  }

 private:
  // Four weights of a step, of 4 bits in the lower halves of two times 16.
  __device__ __forceinline__ uint32 read(const unsigned char* from) const {
    if constexpr (WEIGHT_BITS == 8) {
      const uint32 first = *reinterpret_cast<const unsigned short*>(from + lane_byte);
      const uint32 second = *reinterpret_cast<const unsigned short*>(from + lane_byte + 8);
      return __byte_perm(first, second, 0x5410);
    } else {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      return __byte_perm(both.x, both.y, 0x4400 + lane_byte);
    }
  }

  __device__ __forceinline__ static void widen(uint32 (&pairs)[2], uint32 word) {
    using Of = Pairs<Element>;
    if constexpr (WEIGHT_BITS == 4) {
      const uint32 even = Of::int4<0>(word), odd = Of::int4<1>(word);
      pairs[0] = __byte_perm(even, odd, 0x5410), pairs[1] = __byte_perm(even, odd, 0x7632);
    } else {
      pairs[0] = WEIGHT_KIND == FP8_WEIGHTS ? Of::fp8<0>(word) : Of::int8<0>(word);
      pairs[1] = WEIGHT_KIND == FP8_WEIGHTS ? Of::fp8<2>(word) : Of::int8<2>(word);
    }
  }
};

#endif
