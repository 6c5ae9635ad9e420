// A residual stream and the norm that reads it next, for rows that somebody else's product has made:
//
//   hidden += scale * norm_of_update(update + beside);  normed = norm(hidden)
//
// The norms are those of norm_kinds.cuh; either may be missing, and so may `beside`, the update of the other half
// of a layer. A row stays in registers between sums and norms, so it is read once and written twice.

#include "common/dependent_launch.cuh"
#include "common/row_norm.cuh"

#ifndef NORM
#define NORM 1  // a NormKind: of the sum
#endif
#ifndef UPDATE_NORM
#define UPDATE_NORM 0  // a NormKind: of what is added
#endif

// Grid: (num_rows); a multiple of 32 threads, each with one piece of 16 bytes or none.
extern "C" __global__ void add_norm(Element* normed,                            // [num_rows, width], with NORM
                                    Element* hidden,                            // [num_rows, width]
                                    const Element* update,                      // [num_rows, width], or null
                                    const Element* beside,                      // likewise
                                    const Element* __restrict__ weight,         // [width], with NORM
                                    const Element* __restrict__ bias,           // [width], or null
                                    const Element* __restrict__ update_weight,  // [width], with UPDATE_NORM
                                    const Element* __restrict__ update_bias,    // [width], or null
                                    int width, float epsilon, float update_epsilon, float update_scale) {
  let_next_kernel_start();
  const int at = threadIdx.x * ROW_ELEMENTS;
  const bool has_piece = at < width;
  const int64 place = blockIdx.x * static_cast<int64>(width) + at;
  NormNumbers of_sum = {}, of_update = {};
  if (NORM && has_piece) of_sum.load(weight, bias, at);
  if (UPDATE_NORM && has_piece) of_update.load(update_weight, update_bias, at);
  wait_for_previous_kernel();
  Row row = {}, added = {};
  if (has_piece) {
    row = load_fresh_row(hidden + place);
    if (update != nullptr) added = load_fresh_row(update + place);
    if (beside != nullptr) {
      const Row other = load_fresh_row(beside + place);
#pragma unroll
      for (int i = 0; i < ROW_ELEMENTS; i++) {
        added.elements[i] = from_float<Element>(to_float(added.elements[i]) + to_float(other.elements[i]));
      }
    }
  }
#if UPDATE_NORM
  added = norm_row<UPDATE_NORM>(added, of_update, has_piece, width, update_epsilon);
#endif
  if (has_piece && update != nullptr) {
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) {
      // Rounded in between, as the models' own code does.
      const float scaled = to_float(from_float<Element>(to_float(added.elements[i]) * update_scale));
      row.elements[i] = from_float<Element>(to_float(row.elements[i]) + scaled);
    }
    store_16(hidden + place, as_bytes(row));
  }
#if NORM
#if UPDATE_NORM
  __syncthreads();  // before the sums of the first norm are written over
#endif
  const Row results = norm_row<NORM>(row, of_sum, has_piece, width, epsilon);
  if (has_piece) store_16(normed + place, as_bytes(results));
#endif
}
