// ldmatrix, stmatrix and movmatrix: 8 x 8 matrices of 16-bit elements among the lanes of a warp.
//
// Lane l holds elements (l / 4, 2 (l % 4)) and its right neighbour in a register.

#include <string.h>

#include "barriers.h"
#include "grid.h"
#include "ptx.h"

namespace emulator {
namespace {

struct Matrix {
  uint16_t elements[8][8];

  uint32_t pair(int lane) const {
    return pair_of(elements[lane / 4][2 * (lane % 4)], elements[lane / 4][2 * (lane % 4) + 1]);
  }
  uint32_t transposed_pair(int lane) const {
    return pair_of(elements[2 * (lane % 4)][lane / 4], elements[2 * (lane % 4) + 1][lane / 4]);
  }
};

struct Loaded {
  const char* row;  // lane i has that of row i % 8 of matrix i / 8
  bool transposed;
  uint32_t results[4];
};

void load_all(void* const* payloads, uint32_t) {
  for (int m = 0; m < 4; m++) {
    Matrix matrix;
    for (int r = 0; r < 8; r++) memcpy(matrix.elements[r], static_cast<Loaded*>(payloads[8 * m + r])->row, 16);
    for (int lane = 0; lane < WARP_SIZE; lane++) {
      Loaded& own = *static_cast<Loaded*>(payloads[lane]);
      own.results[m] = own.transposed ? matrix.transposed_pair(lane) : matrix.pair(lane);
    }
  }
}

struct Stored {
  char* row;  // as of `Loaded`
  uint32_t pairs[4];
};

void store_all(void* const* payloads, uint32_t) {
  for (int m = 0; m < 4; m++) {
    for (int lane = 0; lane < WARP_SIZE; lane++) {
      char* row = static_cast<Stored*>(payloads[8 * m + lane / 4])->row;
      memcpy(row + 4 * (lane % 4), &static_cast<Stored*>(payloads[lane])->pairs[m], 4);
    }
  }
}

struct Moved {
  uint32_t given, taken;
};

void transpose(void* const* payloads, uint32_t) {
  Matrix matrix;
  for (int lane = 0; lane < WARP_SIZE; lane++) {
    for (int half = 0; half < 2; half++) {
      matrix.elements[lane / 4][2 * (lane % 4) + half] = half_of(static_cast<Moved*>(payloads[lane])->given, half);
    }
  }
  for (int lane = 0; lane < WARP_SIZE; lane++) {
    static_cast<Moved*>(payloads[lane])->taken = matrix.transposed_pair(lane);
  }
}

}  // namespace

void load_matrices(const Arguments& arguments) {
  Loaded own = {at_shared(arguments.word(4), 16, 16, "ldmatrix"), arguments.has(".trans"), {}};
  meet(~0u, &own, load_all);
  for (int i = 0; i < 4; i++) arguments.put(i, own.results[i]);
}

// [to], {four pairs}
void store_matrices(const Arguments& arguments) {
  Stored own = {at_shared(arguments.word(0), 16, 16, "stmatrix"), {}};
  for (int i = 0; i < 4; i++) own.pairs[i] = arguments.word(1 + i);
  meet(~0u, &own, store_all);
}

void transpose_matrix(const Arguments& arguments) {
  Moved own = {arguments.word(1), 0};
  meet(~0u, &own, transpose);
  arguments.put(0, own.taken);
}

}  // namespace emulator
