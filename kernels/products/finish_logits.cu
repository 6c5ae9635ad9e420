// What becomes of logits behind the product with the vocabulary, where a model does more with them: a scale, and a
// soft cap, cap * tanh(x / cap) (Gemma 2, arXiv 2408.00118).

#include "common/common.cuh"
#include "common/dependent_launch.cuh"
#include "common/row.cuh"

#ifndef CAPPED
#define CAPPED 0
#endif

__device__ __forceinline__ Element finished(Element logit, float scale, float cap) {
  // Rounded in between, as the models' own code does.
  const Element scaled = from_float<Element>(to_float(logit) * scale);
  return CAPPED ? from_float<Element>(tanhf(to_float(scaled) / cap) * cap) : scaled;
}

// Grid: (ceil(num_logits / x / threads)), any number of threads; x elements are 16 bytes.
extern "C" __global__ void finish_logits(Element* logits,  // [num_logits], 16 bytes aligned
                                         int64 num_logits, float scale, float cap) {
  let_next_kernel_start();
  const int64 at = (blockIdx.x * static_cast<int64>(blockDim.x) + threadIdx.x) * ROW_ELEMENTS;
  wait_for_previous_kernel();
  if (at + ROW_ELEMENTS <= num_logits) {
    Row row = load_fresh_row(logits + at);
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) row.elements[i] = finished(row.elements[i], scale, cap);
    store_16(logits + at, as_bytes(row));
    return;
  }
  for (int64 i = at; i < num_logits; i++) logits[i] = finished(__ldcg(logits + i), scale, cap);
}
