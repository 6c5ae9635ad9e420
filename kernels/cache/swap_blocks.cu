// Copy whole blocks between the cache on the device and one in pinned host memory: swapping (Kwon et al. 2023,
// arXiv 2309.06180, section 4.5).
//
// Both caches are stacks of planes, one per layer for K and one for V; in each plane a block is a page, a
// contiguous run of 16-byte rows. The kernel reads and writes host memory at its own address. A warp moves a piece
// of a page at a time and asks for all of it before it writes any, so that a few thread blocks fill the link and
// leave the other multiprocessors to whoever computes meanwhile.

#include "common/common.cuh"

#ifndef ROWS_PER_LANE
#define ROWS_PER_LANE 8
#endif

constexpr int PIECE_ROWS = WARP_SIZE * ROWS_PER_LANE;

// Grid: any number of thread blocks. Block: whole warps.
extern "C" __global__ void swap_blocks(uint4* __restrict__ target,        // [num_planes, *, page_rows]
                                       const uint4* __restrict__ source,  // [num_planes, *, page_rows]
                                       const int64* __restrict__ dst,     // [num_pairs]
                                       const int64* __restrict__ src,     // [num_pairs]
                                       int num_planes, int num_pairs, int page_rows, int64 target_plane_rows,
                                       int64 source_plane_rows) {
  const int lane = threadIdx.x % WARP_SIZE;
  const int warps_per_block = blockDim.x / WARP_SIZE;
  const int num_warps = gridDim.x * warps_per_block;
  const int pieces_per_page = ceil_div(page_rows, PIECE_ROWS);
  const int64 num_pieces = static_cast<int64>(num_planes) * num_pairs * pieces_per_page;

  for (int64 piece = blockIdx.x * warps_per_block + threadIdx.x / WARP_SIZE; piece < num_pieces;
       piece += num_warps) {
    const int64 page = piece / pieces_per_page;
    const int plane = static_cast<int>(page / num_pairs);
    const int pair = static_cast<int>(page % num_pairs);
    const int first = static_cast<int>(piece % pieces_per_page) * PIECE_ROWS + lane;
    const uint4* from = source + plane * source_plane_rows + src[pair] * page_rows;
    uint4* to = target + plane * target_plane_rows + dst[pair] * page_rows;

    uint4 rows[ROWS_PER_LANE];
#pragma unroll
    for (int i = 0; i < ROWS_PER_LANE; i++) {
      const int row = first + i * WARP_SIZE;
      if (row < page_rows) rows[i] = load_once(from + row);
    }
#pragma unroll
    for (int i = 0; i < ROWS_PER_LANE; i++) {
      const int row = first + i * WARP_SIZE;
      if (row < page_rows) __stcs(to + row, rows[i]);
    }
  }
}
