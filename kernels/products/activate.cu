// The middle of a feed-forward, behind a product that somebody else has made: activation(x), or with PAIRED rows
// activation(gate) * value (Shazeer 2020, arXiv 2002.05202), gates and values side by side as one product leaves
// them. The activations are those of activation.cuh.

#include "common/activation.cuh"
#include "common/dependent_launch.cuh"
#include "common/row.cuh"

// Grid: num_tokens * ceil(width / x / threads), row by row: in y there is no room for more than 65,535. Any number
// of threads; x elements are 16 bytes.
extern "C" __global__ void activate_rows(Element* __restrict__ output,  // [num_tokens, width]
                                         const Element* input,          // [num_tokens, width]; with PAIRED
                                                                        // [num_tokens, 2 * width]: gates, values
                                         int width) {
  let_next_kernel_start();
  const uint32 width_of_block = blockDim.x * ROW_ELEMENTS;
  const uint32 blocks_of_row = (width + width_of_block - 1) / width_of_block;
  const uint32 row_idx = blockIdx.x / blocks_of_row;
  const int at = blockIdx.x % blocks_of_row * width_of_block + threadIdx.x * ROW_ELEMENTS;
  if (at >= width) return;
  const Element* from = input + row_idx * (PAIRED + 1) * static_cast<int64>(width) + at;
  wait_for_previous_kernel();
  Row row = load_fresh_row(from);
  Row value = {};
  if (PAIRED) value = load_fresh_row(from + width);
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    // Rounded in between, as the models' own code does.
    const float activated = rounded(activate(to_float(row.elements[i])));
    row.elements[i] = from_float<Element>(PAIRED ? activated * to_float(value.elements[i]) : activated);
  }
  store_16(output + row_idx * static_cast<int64>(width) + at, as_bytes(row));
}
