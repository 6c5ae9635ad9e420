// A residual stream and the norm that reads it next, for rows that somebody else's product has made:
//
//   hidden += update;  normed = norm(hidden)
//
// LayerNorm (Ba et al. 2016, arXiv 1607.06450) or RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467). A row stays
// in registers between the sum and the norm, so it is read once and written twice.

#include "common/block_sum.cuh"
#include "common/dependent_launch.cuh"
#include "common/row.cuh"

#ifndef NORM
#define NORM 1  // 1: LayerNorm, 2: RMSNorm
#endif

// Grid: (num_rows); a multiple of 32 threads, each with one piece of 16 bytes or none.
extern "C" __global__ void add_norm(Element* normed,                     // [num_rows, width]
                                    Element* hidden,                     // [num_rows, width]
                                    const Element* update,               // [num_rows, width], or null
                                    const Element* __restrict__ weight,  // [width]
                                    const Element* __restrict__ bias,    // [width], or null
                                    int width, float epsilon) {
  __shared__ float sums[2][MAX_WARPS];
  let_next_kernel_start();
  const int at = threadIdx.x * ROW_ELEMENTS;
  const bool has_piece = at < width;
  const int64 place = blockIdx.x * static_cast<int64>(width) + at;
  Row scales = {}, shifts = {};
  if (has_piece) {
    scales = as_row(load_16(weight + at));
    if (bias != nullptr) shifts = as_row(load_16(bias + at));
  }
  wait_for_previous_kernel();
  float values[ROW_ELEMENTS] = {};
  if (has_piece) {
    Row row = load_fresh_row(hidden + place);
    if (update != nullptr) {
      const Row added = load_fresh_row(update + place);
#pragma unroll
      for (int i = 0; i < ROW_ELEMENTS; i++) {
        row.elements[i] = from_float<Element>(to_float(row.elements[i]) + to_float(added.elements[i]));
      }
      store_16(hidden + place, as_bytes(row));
    }
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) values[i] = to_float(row.elements[i]);
  }
  float mean = 0.0f;
  if (NORM == 1) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) sum += values[i];
    mean = block_sum(sum, sums[0]) / width;
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    if (has_piece) squares += (values[i] - mean) * (values[i] - mean);
  }
  const float factor = rsqrtf(block_sum(squares, sums[1]) / width + epsilon);
  if (!has_piece) return;
  Row results;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float centred = (values[i] - mean) * factor, scale = to_float(scales.elements[i]);
    // RMSNorm rounds before it scales, as the models' own code does.
    const float exact =
        NORM == 2 ? to_float(from_float<Element>(centred)) * scale : centred * scale + to_float(shifts.elements[i]);
    results.elements[i] = from_float<Element>(exact);
  }
  store_16(normed + place, as_bytes(results));
}
