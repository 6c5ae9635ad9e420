// Where a decode step starts: the vectors of its tokens, by a scale, plus those of their positions where a model
// has such.

#include "common/common.cuh"
#include "common/dependent_launch.cuh"

// Grid: (num_tokens), any number of threads.
extern "C" __global__ void embed_tokens(Element* __restrict__ output,                  // [num_tokens, width]
                                        const Element* __restrict__ token_vectors,     // [vocab_size, width]
                                        const Element* __restrict__ position_vectors,  // [., width], or null
                                        const int* __restrict__ token_ids,             // [num_tokens]
                                        const int* __restrict__ positions,  // [num_tokens]; below 0 counts as 0
                                        int position_offset, int width, float scale) {
  let_next_kernel_start();
  wait_for_previous_kernel();  // the next kernel relies on all before this one having ended
  const int64 token = token_ids[blockIdx.x];
  const int64 position = max(positions[blockIdx.x], 0) + position_offset;
  for (int i = threadIdx.x * ROW_ELEMENTS; i < width; i += blockDim.x * ROW_ELEMENTS) {
    uint4 piece = load_16(token_vectors + token * width + i);
    Element* sums = reinterpret_cast<Element*>(&piece);
#pragma unroll
    for (int j = 0; j < ROW_ELEMENTS; j++) sums[j] = from_float<Element>(to_float(sums[j]) * scale);
    if (position_vectors != nullptr) {
      const uint4 added = load_16(position_vectors + position * width + i);
      const Element* others = reinterpret_cast<const Element*>(&added);
#pragma unroll
      for (int j = 0; j < ROW_ELEMENTS; j++) sums[j] = from_float<Element>(to_float(sums[j]) + to_float(others[j]));
    }
    store_16(output + blockIdx.x * static_cast<int64>(width) + i, piece);
  }
}
