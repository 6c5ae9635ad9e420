// Beams go on in one another's places, as `choose_beams` has decided, before the next step: a row's next token, its
// block table, and what its last block holds.
//
// A row whose beam was given up is the fork of another row's. It shares that one's full blocks, whose ids it takes
// over, and keeps a block of its own behind them; where the sequence ends inside of a block, that is copied, all
// layers, K and V. No row is read whose table or last block is written here: the first fork of a beam is the beam
// itself, in its own row.

#include "common/common.cuh"

// Grid: (ceil(page_rows / blockDim.x), num_rows, num_planes). Block: any.
extern "C" __global__ void move_beams(uint4* __restrict__ cache,          // [num_planes, num_blocks, page_rows]
                                      int* __restrict__ token_ids,        // [num_rows]: what the next step computes
                                      int* __restrict__ block_tables,     // [num_rows, max_blocks_per_seq]
                                      const int* __restrict__ positions,  // [num_rows]: of those tokens
                                      const int* __restrict__ sources,    // [num_rows]; below 0: no beam
                                      const int* __restrict__ next_tokens,  // [num_rows]
                                      int max_blocks_per_seq, int block_size, int page_rows, int64 plane_rows) {
  const int row = blockIdx.y, source = sources[row], position = positions[row], num_full = position / block_size;
  int* own = block_tables + static_cast<int64>(row) * max_blocks_per_seq;
  const int* others = block_tables + static_cast<int64>(source) * max_blocks_per_seq;
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  // NOTE: all of it decided at once, so that no load waits for another one that it does not need.
  const bool forks = (source >= 0) & (source != row);
  if (forks & (position % block_size != 0) & (place < page_rows)) {
    uint4* plane = cache + blockIdx.z * plane_rows + place;
    plane[static_cast<int64>(own[num_full]) * page_rows] = plane[static_cast<int64>(others[num_full]) * page_rows];
  }
  if (blockIdx.x != 0 || blockIdx.z != 0 || source < 0) return;
  if (threadIdx.x == 0) token_ids[row] = next_tokens[row];
  for (int i = threadIdx.x; i < num_full && forks; i += blockDim.x) own[i] = others[i];
}
