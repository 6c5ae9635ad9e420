// The middle of a gated feed-forward (Shazeer 2020, arXiv 2002.05202): silu(gate) * value, gates and values side by
// side as one product leaves them.

#include "common/dependent_launch.cuh"
#include "common/row.cuh"

// Grid: (ceil(width / x / threads), num_tokens), any number of threads; x elements are 16 bytes.
extern "C" __global__ void silu_and_mul(Element* __restrict__ output,  // [num_tokens, width]
                                        const Element* input,          // [num_tokens, 2 * width]: gates, values
                                        int width) {
  let_next_kernel_start();
  const int at = (blockIdx.x * blockDim.x + threadIdx.x) * ROW_ELEMENTS;
  if (at >= width) return;
  const Element* gates = input + blockIdx.y * 2 * static_cast<int64>(width) + at;
  wait_for_previous_kernel();
  Row gate = load_fresh_row(gates);
  const Row value = load_fresh_row(gates + width);
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float x = to_float(gate.elements[i]);
    // Rounded in between, as the models' own code does.
    const float decay = sizeof(Element) == 4 ? expf(-x) : __expf(-x);
    const float activated = to_float(from_float<Element>(x / (1.0f + decay)));
    gate.elements[i] = from_float<Element>(activated * to_float(value.elements[i]));
  }
  store_16(output + blockIdx.y * static_cast<int64>(width) + at, as_bytes(gate));
}
