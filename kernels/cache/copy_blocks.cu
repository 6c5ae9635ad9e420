// Copy whole blocks inside the cache, in all layers, K and V: what copy-on-write comes down to (Kwon et al. 2023,
// arXiv 2309.06180, section 4.4). One launch for everything.
//
// The cache is a stack of planes, one per layer for K and one for V; in each plane a block is a page, a contiguous
// run of 16-byte rows, whatever their layout. A thread owns a few places in the page of one plane and walks through
// its thread block's pairs there, reading some pairs ahead of the writes. So a thread block that has all the pairs
// keeps their order for every byte without any synchronisation; where no block is both read and written, the pairs
// are spread over the grid.

#include "common/common.cuh"

constexpr int PAIRS_AT_ONCE = 2;
constexpr int ROWS_PER_THREAD = 1;

// Grid: (ceil(page_rows / (blockDim.x * ROWS_PER_THREAD)), ceil(num_pairs / pairs_per_block), num_planes). Block:
// any. Thread blocks that run at a time stay in one plane or two, whose pages the memory maps with few entries:
// with the planes before the pairs 512 pairs took 4 % longer.
extern "C" __global__ void copy_blocks(uint4* cache,                   // [num_planes, num_blocks, page_rows]
                                       const int64* __restrict__ src,  // [num_pairs]
                                       const int64* __restrict__ dst,  // [num_pairs]
                                       int num_pairs, int pairs_per_block, int page_rows, int64 plane_rows) {
  const int first_row = blockIdx.x * blockDim.x * ROWS_PER_THREAD + threadIdx.x;
  uint4* plane = cache + blockIdx.z * plane_rows;
  const int begin = blockIdx.y * pairs_per_block;
  const int end = min(begin + pairs_per_block, num_pairs);

  for (int first = begin; first < end; first += PAIRS_AT_ONCE) {
    uint4 rows[PAIRS_AT_ONCE][ROWS_PER_THREAD];
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {  // all reads, then all writes
#pragma unroll
      for (int i = 0; i < PAIRS_AT_ONCE; i++) {
        if (first + i >= end) continue;
        uint4* page = plane + (pass == 0 ? src : dst)[first + i] * page_rows;
#pragma unroll
        for (int j = 0; j < ROWS_PER_THREAD; j++) {
          const int row = first_row + j * blockDim.x;
          if (row >= page_rows) continue;
          if (pass == 0) rows[i][j] = __ldcs(page + row);
          if (pass == 1) __stcs(page + row, rows[i][j]);
        }
      }
    }
  }
}
