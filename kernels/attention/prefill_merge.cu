// Puts together what prefill_mma.cu leaves when it shares the keys of a chunk out over the grid: the mean of the
// partial results, weighted by their sums of weights, which the log-sum-exps hold. With SINKS (scores.cuh) there is
// one more, without a result.
//
//   lse = log sum_i e^lse[i]      output = sum_i e^(lse[i] - lse) partial[i]
//
// One thread takes four dimensions of a row (one head of one token) through all splits. Flash-decoding: Dao et al.
// 2023. IN_ORDER: one part after the other, as part_fold.cuh says.

#ifndef IN_ORDER
#define IN_ORDER 0
#endif

#include "attention/part_fold.cuh"
#include "common/dependent_launch.cuh"
#include "common/online_softmax.cuh"

#ifndef SINKS
#define SINKS 0
#endif

constexpr int NUM_THREADS = 128;
constexpr int ROW_PIECES = HEAD_SIZE / 4;
constexpr int PARTS = 8;  // of a row, on their way at a time

// Grid: (num_tokens * num_heads * ROW_PIECES / NUM_THREADS), NUM_THREADS threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    prefill_merge(Element* __restrict__ output,               // [num_tokens, num_heads, head_size], strided
                  float* __restrict__ lse,                    // [num_tokens, num_heads], or null
                  const float4* __restrict__ partial_output,  // [num_splits, num_tokens, num_heads, head_size / 4]
                  const float* __restrict__ partial_lse,      // [num_splits, num_tokens, num_heads]
                  const int* __restrict__ cu_seqlens_q,       // [num_seqs + 1]
                  const float* __restrict__ sinks,            // [num_heads], or null
                  int num_tokens, int num_seqs, int num_heads, int num_splits, int64 output_token_stride,
                  int64 output_head_stride) {  // elements
  let_next_kernel_start();
  const int64 index = static_cast<int64>(blockIdx.x) * NUM_THREADS + threadIdx.x;
  const int64 row = index / ROW_PIECES;
  const int piece = index % ROW_PIECES;
  const int token = row / num_heads, head = row % num_heads;
  if (token >= min(num_tokens, cu_seqlens_q[num_seqs])) return;  // rows of no sequence were not computed either
  wait_for_previous_kernel();

  const int64 split_rows = static_cast<int64>(num_tokens) * num_heads;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if IN_ORDER
  PartFold fold;
#pragma unroll 8  // log-sum-exps are asked for ahead: in a captured step most parts may be past a sequence's end
  for (int i = num_splits - 1; i >= 0; i--) {
    if (!fold.add(partial_lse[i * split_rows + row])) continue;
    const float4 part = partial_output[(i * split_rows + row) * ROW_PIECES + piece];
    sum.x = fold.sum(sum.x, part.x);
    sum.y = fold.sum(sum.y, part.y);
    sum.z = fold.sum(sum.z, part.z);
    sum.w = fold.sum(sum.w, part.w);
  }
  if (SINKS && fold.add(sinks[head])) {
    sum.x = fold.shrunk(sum.x);
    sum.y = fold.shrunk(sum.y);
    sum.z = fold.shrunk(sum.z);
    sum.w = fold.shrunk(sum.w);
  }
  const float inverse = fold.inverse();
  const float whole_lse = fold.log_sum_exp();
#else
  float top = SINKS ? sinks[head] : NEGATIVE_INFINITY;
  float total = SINKS && top > NEGATIVE_INFINITY ? 1.0f : 0.0f;
  for (int first = 0; first < num_splits; first += PARTS) {
    float part_lse[PARTS];
    float4 parts[PARTS];
    float raised = top;
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
      part_lse[i] = first + i < num_splits ? partial_lse[(first + i) * split_rows + row] : NEGATIVE_INFINITY;
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
      raised = fmaxf(raised, part_lse[i]);
      parts[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (part_lse[i] != NEGATIVE_INFINITY) {  // else nothing was seen there, and nothing written
        parts[i] = partial_output[((first + i) * split_rows + row) * ROW_PIECES + piece];
      }
    }
    if (raised == NEGATIVE_INFINITY) continue;
    const float shrink = exp2_fast((top - raised) * LOG2_E);
    total *= shrink;
    sum = scaled(sum, shrink);
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
      const float weight = exp2_fast((part_lse[i] - raised) * LOG2_E);
      total += weight;
      add_scaled(sum, parts[i], weight);
    }
    top = raised;
  }
  const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
  const float whole_lse = total > 0.0f ? top + logf(total) : NEGATIVE_INFINITY;
#endif
  Element* to = output + token * output_token_stride + head * output_head_stride + 4 * piece;
  *reinterpret_cast<uint2*>(to) = make_uint2(pack_pair<Element>(sum.x * inverse, sum.y * inverse),
                                             pack_pair<Element>(sum.z * inverse, sum.w * inverse));
  if (lse != nullptr && piece == 0) lse[row] = whole_lse;
}
