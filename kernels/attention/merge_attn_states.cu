// Merge two attentions of the same queries over disjoint sets of keys: a prefix and a suffix.
//
//   m = max(lse_a, lse_b)    w = exp(lse - m)    output = (w_a a + w_b b) / (w_a + w_b)    lse = m + log(w_a + w_b)
//
// The softmax over the union of both sets is this mean, so a part that many sequences share need be computed only
// once (Cascade inference of FlashInfer, Ye et al. 2025, arXiv 2501.01005, section 2.2). A side without keys has
// the log-sum-exp -inf, or +inf as some kernels write it, and counts for nothing, whatever its output holds; two of
// them give output 0.
//
// One thread merges one 16-byte row. It asks for both rows and both weights before it uses any, so a launch costs
// one trip to memory; the weights are computed again by each thread of a head, which is cheaper than sharing them.
// Nothing is used twice, so all of it goes through the caches as a stream: 5 % faster where they overflow.
//
// Constants: ELEMENT, HEAD_SIZE.

#include "common/dependent_launch.cuh"
#include "common/row.cuh"

constexpr int ROWS_PER_HEAD = HEAD_SIZE / ROW_ELEMENTS;

__device__ __forceinline__ uint4* row_at(Element* address) { return reinterpret_cast<uint4*>(address); }
__device__ __forceinline__ const uint4* row_at(const Element* address) {
  return reinterpret_cast<const uint4*>(address);
}

// No sum of finite scores is +inf: it stands for no keys, like -inf.
__device__ __forceinline__ float lse_of_side(float lse) {
  return lse == -NEGATIVE_INFINITY ? NEGATIVE_INFINITY : lse;
}

// What a side without keys holds must not count, not even NaN.
__device__ __forceinline__ Row row_of_side(uint4 bytes, float lse) {
  return as_row(lse == NEGATIVE_INFINITY ? make_uint4(0, 0, 0, 0) : bytes);
}

// Grid: (ceil(num_states / (blockDim.x / ROWS_PER_HEAD))). Block: a multiple of ROWS_PER_HEAD.
// num_states = num_tokens * num_heads. May start before the previous kernel has ended.
extern "C" __global__ void merge_attn_states(Element* __restrict__ output,               // [num_states, HEAD_SIZE]
                                             float* __restrict__ output_lse,             // [num_states], or null
                                             const Element* __restrict__ prefix_output,  // [num_states, HEAD_SIZE]
                                             const float* __restrict__ prefix_lse,       // [num_states]
                                             const Element* __restrict__ suffix_output,  // [num_states, HEAD_SIZE]
                                             const float* __restrict__ suffix_lse,       // [num_states]
                                             int num_states) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int states_per_block = blockDim.x / ROWS_PER_HEAD;
  const int state = blockIdx.x * states_per_block + threadIdx.x / ROWS_PER_HEAD;
  const int column = threadIdx.x % ROWS_PER_HEAD * ROW_ELEMENTS;
  if (state >= num_states) return;

  const int64 offset = static_cast<int64>(state) * HEAD_SIZE + column;
  const float lse_a = lse_of_side(prefix_lse[state]);
  const float lse_b = lse_of_side(suffix_lse[state]);
  const uint4 bytes_a = __ldcs(row_at(prefix_output + offset));
  const uint4 bytes_b = __ldcs(row_at(suffix_output + offset));
  const Row a = row_of_side(bytes_a, lse_a);
  const Row b = row_of_side(bytes_b, lse_b);

  const float top = fmaxf(lse_a, lse_b);
  const bool is_empty = top == NEGATIVE_INFINITY;
  const float weight_a = is_empty ? 0.0f : expf(lse_a - top);
  const float weight_b = is_empty ? 0.0f : expf(lse_b - top);
  const float sum = weight_a + weight_b;
  const float scale = is_empty ? 0.0f : 1.0f / sum;

  Row merged;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float weighted = weight_a * to_float(a.elements[i]) + weight_b * to_float(b.elements[i]);
    merged.elements[i] = from_float<Element>(weighted * scale);
  }
  __stcs(row_at(output + offset), as_bytes(merged));
  if (output_lse != nullptr && column == 0) output_lse[state] = is_empty ? NEGATIVE_INFINITY : top + logf(sum);
}
