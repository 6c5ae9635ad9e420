// The arithmetic of wgmma, and where its matrices lie in shared memory (PTX ISA, "Asynchronous Warpgroup Level
// Matrix Shared Memory Layout").

#include <string.h>

#include "grid.h"
#include "wgmma.h"

namespace emulator {
namespace {

constexpr int DEPTH = 16, DEPTH_OF_BYTES = 32, ROWS = 64;

uint32_t field(uint64_t descriptor, int shift) { return static_cast<uint32_t>(descriptor >> shift & 0x3fff) << 4; }

// Bytes of a row of a core matrix, which the layout type says: 16 without a swizzle, 128, 64, 32 with one.
uint32_t row_bytes_of(uint64_t descriptor) {
  const uint32_t bytes[] = {16, 128, 64, 32};
  return bytes[descriptor >> 62];
}

// Of an element of so many bytes, from the beginning of the matrix; `leading` and `stride` are the descriptor's
// byte offsets.
uint32_t offset_along_depth(uint32_t row, uint32_t k, uint32_t bytes, uint32_t row_bytes, uint32_t leading,
                            uint32_t stride) {
  const uint32_t in_row = row_bytes / bytes;  // elements
  return k / in_row * leading + row / 8 * stride + row % 8 * row_bytes + k % in_row * bytes;
}

uint32_t offset_transposed(uint32_t row, uint32_t k, uint32_t row_bytes, uint32_t leading, uint32_t stride) {
  const uint32_t in_row = row_bytes / 2;
  const uint32_t of_rows = row_bytes == 16 ? stride : leading, of_depth = row_bytes == 16 ? leading : stride;
  return row / in_row * of_rows + k / 8 * of_depth + k % 8 * row_bytes + row % in_row * 2;
}

// The register and half of it that has element (row, k) of A, in thread `thread_of_row(row, k)`.
int thread_of_row(int row, int k) { return row / 16 * WARP_SIZE + row % 8 * 4 + k % 8 / 2; }
int register_of_row(int row, int k) { return (row % 16 >= 8) + 2 * (k >= 8); }

// Of the number `i` of a thread, in D.
int row_of(int thread, int i) { return thread / WARP_SIZE * 16 + thread % WARP_SIZE / 4 + i / 2 % 2 * 8; }
int column_of(int thread, int i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

// What lies `offset` bytes into a matrix; with a swizzle 16-byte pieces of a row change places.
template <typename T>
T in_shared(uint64_t descriptor, uint32_t offset) {
  uint32_t address = field(descriptor, 0) + offset;
  address ^= address >> 3 & (row_bytes_of(descriptor) - 16);
  T found;
  const uint32_t place = current->block.rank << RANK_SHIFT | (address & 0x3ffff);
  memcpy(&found, at_shared(place, sizeof(T), sizeof(T), "wgmma"), sizeof(T));
  return found;
}

}  // namespace

float Matrix16::at(int row, int k) const {
  const uint32_t leading = field(descriptor, 16), stride = field(descriptor, 32), width = row_bytes_of(descriptor);
  const uint32_t offset = transposed ? offset_transposed(row, k, width, leading, stride)
                                     : offset_along_depth(row, k, 2, width, leading, stride);
  return value_of(in_shared<uint16_t>(descriptor, offset), element);
}

int8_t Matrix16::integer_at(int row, int k) const {
  const uint32_t leading = field(descriptor, 16), stride = field(descriptor, 32);
  return in_shared<int8_t>(descriptor, offset_along_depth(row, k, 1, row_bytes_of(descriptor), leading, stride));
}

void Product::run_integers() const {
  int8_t left[ROWS][DEPTH_OF_BYTES];
  std::vector<int8_t> right(static_cast<size_t>(columns) * DEPTH_OF_BYTES);
  for (int k = 0; k < DEPTH_OF_BYTES; k++) {
    for (int row = 0; row < ROWS; row++) left[row][k] = a.integer_at(row, k);
    for (int column = 0; column < columns; column++) right[column * DEPTH_OF_BYTES + k] = b.integer_at(column, k);
  }
  for (int thread = 0; thread < WARPGROUP_SIZE; thread++) {
    for (int i = 0; i < columns / 2; i++) {
      const int row = row_of(thread, i), column = column_of(thread, i);
      int32_t* d = static_cast<int32_t*>(shares[thread].d[i]);
      int32_t sum = adds ? *d : 0;
      for (int k = 0; k < DEPTH_OF_BYTES; k++) sum += left[row][k] * right[column * DEPTH_OF_BYTES + k];
      *d = sum;
    }
  }
}

void Product::run() const {
  if (integers) return run_integers();
  float left[ROWS][DEPTH];
  std::vector<float> right(static_cast<size_t>(columns) * DEPTH);
  for (int row = 0; row < ROWS; row++) {
    for (int k = 0; k < DEPTH; k++) {
      const uint32_t pair = a_is_in_registers ? shares[thread_of_row(row, k)].a[register_of_row(row, k)] : 0;
      left[row][k] = a_is_in_registers ? value_of(half_of(pair, k % 2), a.element) : a.at(row, k);
    }
  }
  for (int column = 0; column < columns; column++) {
    for (int k = 0; k < DEPTH; k++) right[column * DEPTH + k] = b.at(column, k);
  }
  for (int thread = 0; thread < WARPGROUP_SIZE; thread++) {
    for (int i = 0; i < columns / 2; i++) {
      const int row = row_of(thread, i), column = column_of(thread, i);
      float* d = static_cast<float*>(shares[thread].d[i]);
      double sum = adds ? *d : 0.0;
      for (int k = 0; k < DEPTH; k++) sum += static_cast<double>(left[row][k]) * right[column * DEPTH + k];
      *d = static_cast<float>(sum);
    }
  }
}

}  // namespace emulator
