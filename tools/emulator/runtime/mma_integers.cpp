// mma.sync of 8-bit integers: D 16 x 8 += A 16 x 32 B, by a warp.
//
// Lane (g, q) = (lane / 4, lane % 4) has what the PTX ISA gives it ("Matrix Fragments for mma.m16n8k32").

#include "barriers.h"
#include "grid.h"
#include "ptx.h"

namespace emulator {
namespace {

constexpr int INTEGER_DEPTH = 32;

struct IntegerFragments {
  int32_t* d[4];
  uint32_t a[4], b[2];
};

struct IntegerOperands {
  int8_t a[16][INTEGER_DEPTH], b[INTEGER_DEPTH][8];
};

int8_t byte_of(uint32_t word, int index) { return static_cast<int8_t>(word >> 8 * index); }

// A register of A holds the row g, or g + 8 for odd numbers, and from number 2 on the second half of the depth.
void gather(IntegerOperands& operands, const IntegerFragments& own, int lane) {
  const int g = lane / 4, q = lane % 4;
  for (int i = 0; i < 4; i++) {
    for (int byte = 0; byte < 4; byte++)
      operands.a[g + 8 * (i % 2)][16 * (i / 2) + 4 * q + byte] = byte_of(own.a[i], byte);
  }
  for (int i = 0; i < 2; i++) {
    for (int byte = 0; byte < 4; byte++) operands.b[16 * i + 4 * q + byte][g] = byte_of(own.b[i], byte);
  }
}

void add_product(const IntegerOperands& operands, const IntegerFragments& own, int lane) {
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    for (int k = 0; k < INTEGER_DEPTH; k++) *own.d[i] += operands.a[row][k] * operands.b[k][column];
  }
}

void multiply_integers(void* const* payloads, uint32_t) {
  IntegerOperands operands;
  for (int lane = 0; lane < WARP_SIZE; lane++)
    gather(operands, *static_cast<IntegerFragments*>(payloads[lane]), lane);
  for (int lane = 0; lane < WARP_SIZE; lane++)
    add_product(operands, *static_cast<IntegerFragments*>(payloads[lane]), lane);
}

}  // namespace

void multiply_integers_in_warp(const Arguments& arguments) {
  IntegerFragments own;
  for (int i = 0; i < 4; i++) own.d[i] = arguments.place<int32_t>(i);
  for (int i = 0; i < 4; i++) own.a[i] = arguments.word(4 + i);
  for (int i = 0; i < 2; i++) own.b[i] = arguments.word(8 + i);
  meet(~0u, &own, multiply_integers);
}

}  // namespace emulator
