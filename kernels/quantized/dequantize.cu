// weight = digits * scales + minimums in 16 bits, rounded once: what a library multiplies many rows by.
//
// A thread has 8 elements: 4 or 8 bytes to read, 16 to write, so that a warp reads and writes whole lines.

#include "quantized/weight_kinds.cuh"

static_assert(FEW_BITS, "a kind of weight is named");

constexpr int NUM_THREADS = 256;

// Where element `i` of eight is among those that `as_elements` gives.
constexpr __device__ int place_of(int i) { return WEIGHT_BITS == 8 ? i : i % 4 * 2 + i / 4; }

// Grid: (ceil(num_pieces / NUM_THREADS)), NUM_THREADS threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    dequantize(Element* __restrict__ weight,            // [num_rows, row_pieces, 8]
               const StoredPiece* __restrict__ digits,  // [num_rows, row_pieces]
               const __half* __restrict__ scales,       // [num_rows, 8 * row_pieces / group_size]
               const __half* __restrict__ minimums,     // the same, or null
               int64 num_pieces, int row_pieces, int group_size) {
  const int64 index = static_cast<int64>(blockIdx.x) * NUM_THREADS + threadIdx.x;
  if (index >= num_pieces) return;
  const int64 row = index / row_pieces;
  const int piece = static_cast<int>(index - row * row_pieces);
  const int64 group = row * (row_pieces * PIECE / group_size) + piece * PIECE / group_size;
  const float scale = WEIGHT_FACTOR * __half2float(scales[group]);
  const float minimum = minimums == nullptr ? 0.0f : __half2float(minimums[group]);
  float found[PIECE], values[PIECE];
  unpack(as_elements(digits[index]), found);
#pragma unroll
  for (int i = 0; i < PIECE; i++) values[i] = found[place_of(i)] * scale + minimum;
  store_16(weight + index * PIECE, pack(values));
}
