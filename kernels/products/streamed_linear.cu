// output = residual + scale * activation(weight * norm(input) + bias) for a few tokens, as small_batch_linear.cu,
// where the weight is so large that it streams through shared memory.
//
// With PAIRED rows (activation.cuh) the weight holds gates and then values.

#include "common/activation.cuh"
#include "products/streamed_product.cuh"

constexpr int OUT_ROWS = PAIRED ? UNIT / 2 : UNIT;  // of a unit

// What this thread's result of a group is added to, asked for before the result is there.
struct Addends {
  float shift = 0.0f, before = 0.0f;
  RowScales scales;

  __device__ __forceinline__ void fetch(const Element* bias, const Element* residual, int feature, int64 place) {
    if (bias != nullptr) shift = to_float(bias[feature]);
    if (residual != nullptr) before = to_float(load_fresh(residual + place));
  }
};

// Grid: any number of thread blocks up to units, best one a multiprocessor; (NUM_WARPS + 1) * 32 threads;
// StreamShared is dynamic shared memory.
extern "C" __global__ void __launch_bounds__(NUM_THREADS + WARP_SIZE, 1)
    streamed_linear(Element* output,                   // [num_tokens, out_features], strided; may be the residual
                    const void* __restrict__ weight,   // [out_features, IN_FEATURES], twice the rows if PAIRED
                    const Element* __restrict__ bias,  // [out_features], or null; not with PAIRED
                    const Element* __restrict__ input_rows,   // [num_tokens, IN_FEATURES]
                    const Element* residual,                  // [num_tokens, out_features], or null
                    const Element* __restrict__ norm_weight,  // [IN_FEATURES], with NORM
                    const Element* __restrict__ norm_bias,    // [IN_FEATURES], or null
                    int num_tokens, int out_features,
                    int row_stride,  // elements between tokens of output, residual
                    float epsilon, float residual_scale,
                    const __half* __restrict__ scales,      // of few bits: [rows of the weight, ROW_GROUPS]
                    const __half* __restrict__ minimums) {  // the same, with MINIMUMS
  extern __shared__ __align__(128) unsigned char memory[];
  StreamShared& shared = *reinterpret_cast<StreamShared*>(memory);
  const int num_units = out_features / OUT_ROWS;
  prepare_ring(shared);
  if (copies_weights()) {
#if NORM
    fill_norm(shared, norm_weight, norm_bias);
#endif
    fill_ring<PAIRED + 1>(shared, {weight, scales, minimums}, num_units,
                          [=](int unit, int run) { return unit * OUT_ROWS + run * out_features; });
    return;
  }
  const StreamPlace place;
  StreamInput input;
  take_input(input, shared, place, input_rows, norm_bias != nullptr, num_tokens, epsilon);
  const OwnResult<OUT_ROWS> own;
  Addends addends;
  const auto fetch_addends = [&](int group) {
    if (!own.exists(group, num_units, num_tokens)) return;
    const int feature = own.feature(group);
    addends.fetch(bias, residual, feature, static_cast<int64>(own.token) * row_stride + feature);
    addends.scales.fetch(scales, feature, feature + PAIRED * out_features);
  };
  fetch_addends(threadIdx.x / TEAM);
  multiply_units(shared, place, input, num_units, [&](int group) {
    if (!own.exists(group, num_units, num_tokens)) return;
    float value = own.total(shared, group) * addends.scales.of[0];
#if PAIRED
    value = activate(rounded(value)) * rounded(own.total(shared, group, OUT_ROWS) * addends.scales.of[1]);
#else
    value = activate(value + addends.shift);
#endif
    if (residual != nullptr) value = rounded(rounded(value) * residual_scale) + addends.before;
    output[static_cast<int64>(own.token) * row_stride + own.feature(group)] = from_float<Element>(value);
    fetch_addends(group + NUM_TEAMS);
  });
}
