// Products of a warpgroup (wgmma): D 64 x N (+)= A 64 x 16 B 16 x N, of 8-bit integers A 64 x 32 B 32 x N. They run
// at once or when somebody waits for them.

#pragma once

#include <deque>
#include <vector>

#include "elements.h"

namespace emulator {

// What a thread says of a product.
struct Share {
  std::vector<void*> d;  // float or int32_t, 4 for every 8 columns, as of mma
  uint32_t a[4];
};

// A matrix in shared memory.
struct Matrix16 {
  uint64_t descriptor;
  bool transposed;  // neighbours in memory are rows of A or columns of B, not the depth
  Element element;

  float at(int row, int k) const;
  int8_t integer_at(int row, int k) const;
};

struct Product {
  int columns;
  bool adds, a_is_in_registers;
  Matrix16 a, b;
  std::vector<Share> shares;  // of 128 threads
  bool integers = false;      // of 8 bits

  void run() const;
  void run_integers() const;
};

struct Warpgroup {
  uint32_t arrived = 0, generation = 0;
  const char* what = "";
  std::vector<Share> shares;
  std::vector<Product> open;
  std::deque<std::vector<Product>> groups;

  void run_until(size_t num_left);
};

}  // namespace emulator
