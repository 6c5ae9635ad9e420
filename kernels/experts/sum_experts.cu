// What a token gets from its experts: their products, each times its weight, in the order of the token's experts,
// so that the sum is the same whoever else is there. With an expert that all tokens share, times a sigmoid if it
// has a gate, that is added. With a residual stream the sum is added to that, which may be the output.

#include "common/dependent_launch.cuh"
#include "common/row.cuh"

#ifndef PER_TOKEN
#define PER_TOKEN 8
#endif

// Grid: (num_tokens, ceil(width / x / threads)), any number of threads; x elements are 16 bytes.
extern "C" __global__ void sum_experts(Element* output,                            // [num_tokens, width]
                                       const Element* products,                    // [num_tokens, PER_TOKEN, width]
                                       const float* weights,                       // [num_tokens, PER_TOKEN]
                                       const Element* __restrict__ shared_rows,    // [num_tokens, width], or null
                                       const Element* __restrict__ shared_logits,  // [num_tokens], or null
                                       const Element* residual,                    // [num_tokens, width], or null
                                       float residual_scale, int width) {
  let_next_kernel_start();
  const int token = blockIdx.x, at = (blockIdx.y * blockDim.x + threadIdx.x) * ROW_ELEMENTS;
  if (at >= width) return;
  const Element* from = products + static_cast<int64>(token) * PER_TOKEN * width + at;
  float sums[ROW_ELEMENTS] = {};
  wait_for_previous_kernel();
#pragma unroll
  for (int slot = 0; slot < PER_TOKEN; slot++) {
    const Row row = load_fresh_row(from + static_cast<int64>(slot) * width);
    const float weight = __ldcg(weights + static_cast<int64>(token) * PER_TOKEN + slot);
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) sums[i] += weight * to_float(row.elements[i]);
  }
  const int64 place = static_cast<int64>(token) * width + at;
  if (shared_rows != nullptr) {
    const Row row = as_row(load_16(shared_rows + place));
    const float weight = shared_logits == nullptr ? 1.0f : 1.0f / (1.0f + expf(-to_float(shared_logits[token])));
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) sums[i] += weight * to_float(row.elements[i]);
  }
  if (residual != nullptr) {
    const Row row = load_fresh_row(residual + place);
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) sums[i] = to_float(row.elements[i]) + residual_scale * sums[i];
  }
  Row result;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) result.elements[i] = from_float<Element>(sums[i]);
  store_16(output + place, as_bytes(result));
}
