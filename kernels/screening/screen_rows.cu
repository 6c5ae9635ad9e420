// The input of a screened vocabulary: each token's last row, normed where nobody has done so, in two digits of 8
// bits an element, as warpgroups multiply them (screen_vocabulary.cu), with its length and that of what the digits
// leave (bounds.cuh).
//
// Digits lie in chunks of 128 inner elements; of a token there are two columns, the first digit's and the second
// one's, 128 bytes each, whose 16-byte pieces have changed places.

#include "common/dependent_launch.cuh"
#include "common/row_norm.cuh"
#include "screening/bounds.cuh"

#ifndef NORM
#define NORM 0  // a NormKind
#endif

// Grid: (columns of tokens); a multiple of 32 threads, one for each 8 elements of `num_chunks` chunks.
extern "C" __global__ void screen_rows(Element* __restrict__ normed,        // [num_tokens, width], with NORM
                                       unsigned char* __restrict__ digits,  // [num_chunks, 2 * gridDim.x, CHUNK]
                                       InputBounds* __restrict__ bounds,    // [gridDim.x]
                                       const Element* rows,                 // [num_tokens, width]
                                       const Element* __restrict__ weight,  // [width], with NORM
                                       const Element* __restrict__ bias,    // [width], or null
                                       int num_tokens, int width, int num_chunks, float epsilon) {
  __shared__ float of_warps[3][MAX_WARPS];
  let_next_kernel_start();
  const int token = blockIdx.x, at = threadIdx.x * ROW_ELEMENTS;
  const bool has_piece = token < num_tokens && at < width;
  const int64 place = static_cast<int64>(token) * width + at;
  NormNumbers numbers = {};
  if (NORM && has_piece) numbers.load(weight, bias, at);
  wait_for_previous_kernel();
  Row row = {};
  if (has_piece) row = load_fresh_row(rows + place);
#if NORM
  row = norm_row<NORM>(row, numbers, has_piece, width, epsilon);
  if (has_piece) store_16(normed + place, as_bytes(row));
#endif
  float values[ROW_ELEMENTS], largest = 0.0f, squares = 0.0f;
  bool is_finite = true;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    values[i] = has_piece ? to_float(row.elements[i]) : 0.0f;
    largest = fmaxf(largest, fabsf(values[i]));
    squares += values[i] * values[i];
    is_finite = is_finite && values[i] - values[i] == 0.0f;
  }
  if (!is_finite) squares = __int_as_float(0x7f800000);
  largest = block_max(largest, of_warps[0]);
  const float length = sqrtf(block_sum(squares, of_warps[1])) * 1.001f;
  const float scale = largest / LARGEST_INPUT, steps = scale > 0.0f ? 1.0f / scale : 0.0f;
  float rest = 0.0f;
  alignas(8) int8 high[ROW_ELEMENTS], low[ROW_ELEMENTS];
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const float whole = rintf(fminf(fmaxf(values[i] * steps, -LARGEST_INPUT), LARGEST_INPUT));
    const float first = rintf(whole / DIGIT_STEP);
    high[i] = static_cast<int8>(first);
    low[i] = static_cast<int8>(whole - first * DIGIT_STEP);
    const float left = values[i] - whole * scale;
    rest += left * left;
  }
  // NOTE: sums of products are converted to float32 and added there, which loses some parts in 2^23 of them.
  rest = sqrtf(block_sum(rest, of_warps[2])) * 1.001f + length * 0x1p-20f;
  if (at < num_chunks * CHUNK) {
    const int chunk = at / CHUNK, in_chunk = at % CHUNK;
    unsigned char* columns = digits + static_cast<int64>(chunk) * 2 * gridDim.x * CHUNK;
    const auto place_in = [=](int column) {
      return columns + column * CHUNK + swizzled(in_chunk / 16, column) * 16 + in_chunk % 16;
    };
    *reinterpret_cast<uint2*>(place_in(2 * token)) = *reinterpret_cast<const uint2*>(high);
    *reinterpret_cast<uint2*>(place_in(2 * token + 1)) = *reinterpret_cast<const uint2*>(low);
  }
  if (threadIdx.x == 0) bounds[token] = {scale, length, rest, 0.0f};
}
