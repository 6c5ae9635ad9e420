// mma.sync: D 16 x 8 += A 16 x 16 (or 16 x 8) B, by a warp. Sums are exact to a double, then rounded to a float.
//
// Lane (g, q) = (lane / 4, lane % 4) has what the PTX ISA gives it ("Matrix Fragments for mma.m16n8k16").

#include "barriers.h"
#include "grid.h"
#include "ptx.h"

namespace emulator {
namespace {

struct Fragments {
  Element element;
  int depth;  // 16 or 8
  float* d[4];
  uint32_t a[4], b[2];
};

struct Operands {
  float a[16][16], b[16][8];
};

// A register of A holds the row g, or g + 8 for odd numbers, and from number 2 on the second half of the depth.
void gather(Operands& operands, const Fragments& own, int lane) {
  const int g = lane / 4, q = lane % 4, registers = own.depth / 4;
  for (int i = 0; i < registers; i++) {
    for (int half = 0; half < 2; half++) {
      operands.a[g + 8 * (i % 2)][8 * (i / 2) + 2 * q + half] = value_of(half_of(own.a[i], half), own.element);
    }
  }
  for (int i = 0; i < registers / 2; i++) {
    for (int half = 0; half < 2; half++) {
      operands.b[8 * i + 2 * q + half][g] = value_of(half_of(own.b[i], half), own.element);
    }
  }
}

void add_product(const Operands& operands, const Fragments& own, int lane) {
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    double sum = *own.d[i];
    for (int k = 0; k < own.depth; k++) sum += static_cast<double>(operands.a[row][k]) * operands.b[k][column];
    *own.d[i] = static_cast<float>(sum);
  }
}

void multiply(void* const* payloads, uint32_t) {
  Operands operands;
  for (int lane = 0; lane < WARP_SIZE; lane++) gather(operands, *static_cast<Fragments*>(payloads[lane]), lane);
  for (int lane = 0; lane < WARP_SIZE; lane++)
    add_product(operands, *static_cast<Fragments*>(payloads[lane]), lane);
}

}  // namespace

void multiply_in_warp(const Arguments& arguments) {
  const int depth = arguments.has("m16n8k8.") ? 8 : 16, num_a = depth / 4, num_b = depth / 8;
  Fragments own = {arguments.has(".bf16.") ? Element::BFLOAT16 : Element::FLOAT16, depth, {}, {}, {}};
  for (int i = 0; i < 4; i++) own.d[i] = arguments.place<float>(i);
  for (int i = 0; i < num_a; i++) own.a[i] = arguments.word(4 + i);
  for (int i = 0; i < num_b; i++) own.b[i] = arguments.word(4 + num_a + i);
  meet(~0u, &own, multiply);
}

}  // namespace emulator
