// Tiles of rows by 64 inner elements in shared memory, where warpgroup products read them: 128 bytes a row, whose
// 16-byte pieces change places (`swizzled`), so that neither the copies nor the products meet in a bank. Rows of
// the input and rows of the weight lie alike; both are summed over the inner elements.

#pragma once

#include "common/async_copy.cuh"
#include "common/wgmma.cuh"

constexpr int GROUP_THREADS = 4 * WARP_SIZE;  // of a warpgroup
constexpr int TILE_ROW = 128;                 // bytes
constexpr int TILE_INNER = TILE_ROW / static_cast<int>(sizeof(Element));
constexpr int ROW_PIECES = TILE_ROW / 16;
constexpr int ROWS_AT_ONCE = GROUP_THREADS / ROW_PIECES;

// What a thread of a warpgroup copies of tiles of one matrix, whose rows are `stride` elements apart.
struct TileCopy {
  const Element* from;
  int row, place;  // of its first piece in a tile

  __device__ __forceinline__ TileCopy(const Element* matrix, int64 stride) {
    const int thread = threadIdx.x % GROUP_THREADS;
    row = thread / ROW_PIECES;
    place = swizzled(thread * 16, TILE_ROW);
    from = matrix + row * stride + thread % ROW_PIECES * ROW_ELEMENTS;
  }

  // NUM_ROWS rows from inner element `inner` on; those from `num_valid` on become zeros.
  template <int NUM_ROWS>
  __device__ __forceinline__ void copy(unsigned char* tile, int inner, int64 stride, int num_valid) const {
    static_assert(NUM_ROWS % ROWS_AT_ONCE == 0, "all threads have equally many pieces");
#pragma unroll
    for (int i = 0; i < NUM_ROWS; i += ROWS_AT_ONCE) {
      copy_16_async(tile + place + i * TILE_ROW, from + i * stride + inner, row + i < num_valid);
    }
  }

  // Keeps the compiler from working it out later than here.
  __device__ __forceinline__ void settle() { asm volatile("" : "+l"(from), "+r"(row), "+r"(place)); }
};

__device__ __forceinline__ uint64 tile_descriptor(const unsigned char* tile) {
  const uint32 address = static_cast<uint32>(__cvta_generic_to_shared(tile));
  return matrix_descriptor(address, 16, 8 * TILE_ROW, TILE_ROW);
}

// Adds the products of a tile of 64 rows and one of NUM_COLUMNS rows.
template <int NUM_COLUMNS>
__device__ __forceinline__ void multiply_tiles(float (&sums)[NUM_COLUMNS / 2], uint64 rows, uint64 columns) {
#pragma unroll
  for (int at = 0; at < TILE_ROW; at += 32) {  // 16 inner elements
    Product<NUM_COLUMNS>::shared_shared(sums, moved(rows, at), moved(columns, at), true);
  }
}
