// output = residual + scale * activation(weight * norm(input) + bias) for a few tokens: the linear layers of a
// decode step, with what comes before and after them.
//
// With PAIRED rows (activation.cuh) the weight holds gates and then values.

#include "common/activation.cuh"
#include "products/small_batch_product.cuh"

constexpr int OUT_ROWS = PAIRED ? TILE_ROWS / 2 : TILE_ROWS;  // of a thread block

// Grid: (out_features / OUT_ROWS), NUM_WARPS * 32 threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    small_batch_linear(Element* __restrict__ output,  // [num_tokens, out_features], strided; may be the residual
                       const Element* __restrict__ weight,  // [out_features, IN_FEATURES], twice the rows if PAIRED
                       const Element* __restrict__ bias,    // [out_features], or null; not with PAIRED
                       const Element* __restrict__ input,   // [num_tokens, IN_FEATURES]
                       const Element* residual,             // [num_tokens, out_features], or null
                       const Element* __restrict__ norm_weight,           // [IN_FEATURES], with NORM
                       const Element* __restrict__ norm_bias,             // [IN_FEATURES], or null
                       int num_tokens, int out_features, int row_stride,  // elements between tokens of both
                       float epsilon, float residual_scale) {
  __shared__ ProductShared shared;
  let_next_kernel_start();
  WarpProduct product;
  const int first_row = blockIdx.x * OUT_ROWS;
  const int below = PAIRED ? out_features : 8;
  const Element* row = weight + static_cast<int64>(first_row + product.g) * IN_FEATURES;
  const Element* row_below = row + static_cast<int64>(below) * IN_FEATURES;
  product.fetch(row, row_below, 0);
  // What the end needs is asked for now: waiting for it then would take as long as the product.
  constexpr int RESULTS = ceil_div(OUT_ROWS * MAX_TOKENS, NUM_THREADS);  // of a thread
  float shift[RESULTS] = {}, before[RESULTS] = {};
#pragma unroll
  for (int j = 0; j < RESULTS; j++) {
    const int i = threadIdx.x + j * NUM_THREADS;
    if (bias != nullptr && i < OUT_ROWS * num_tokens) shift[j] = to_float(bias[first_row + i % OUT_ROWS]);
  }
  const auto read_residual = [&] {
#pragma unroll
    for (int j = 0; j < RESULTS; j++) {
      const int i = threadIdx.x + j * NUM_THREADS;
      if (residual == nullptr || i >= OUT_ROWS * num_tokens) continue;
      before[j] =
          to_float(load_fresh(residual + static_cast<int64>(i / OUT_ROWS) * row_stride + first_row + i % OUT_ROWS));
    }
  };
#if NORM
  fetch_norm(shared, norm_weight, norm_bias);
  normalise(product, shared, input, num_tokens, epsilon,
            [&](int tile, int step, uint4 piece) { product.multiply(tile, step, piece); });
  read_residual();
#else
  wait_for_previous_kernel();
  read_residual();
  multiply_plain(product, row, row_below, input, num_tokens);
#endif
  share_sums(product, shared);
#pragma unroll
  for (int j = 0; j < RESULTS; j++) {
    const int i = threadIdx.x + j * NUM_THREADS, token = i / OUT_ROWS, local = i % OUT_ROWS;
    if (i >= OUT_ROWS * num_tokens) break;
    float value = result(shared, local, token);
#if PAIRED
    value = activate(rounded(value)) * rounded(result(shared, local + 8, token));
#else
    value = activate(value + shift[j]);
#endif
    if (residual != nullptr) value = rounded(rounded(value) * residual_scale) + before[j];
    output[static_cast<int64>(token) * row_stride + first_row + local] = from_float<Element>(value);
  }
}
