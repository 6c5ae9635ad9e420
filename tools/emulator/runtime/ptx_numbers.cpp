// Arithmetic and special registers; and what has no effect here.

#include <math.h>

#include "failure.h"
#include "grid.h"
#include "ptx.h"

namespace emulator {

void nothing(const Arguments&) {}

void make_policy(const Arguments& arguments) { arguments.put(0, 1); }

void exponential(const Arguments& arguments) { arguments.put(0, bits_of(exp2f(arguments.number(1)))); }

void unpack_float16(const Arguments& arguments) {
  const uint32_t pair = arguments.word(0);
  arguments.put(1, bits_of(half_to_float(half_of(pair, 0))));
  arguments.put(2, bits_of(half_to_float(half_of(pair, 1))));
}

// Four of a word: sign, 4 bits of exponent, 3 of fraction; the exponent is put right by a multiplication.
void unpack_e4m3(const Arguments& arguments) {
  const uint32_t word = arguments.word(0);
  for (int pair = 0; pair < 2; pair++) {
    uint32_t halves = 0;
    for (int i = 0; i < 2; i++) {
      const uint32_t byte = word >> 8 * (2 * pair + i) & 255;
      const float small = half_to_float(static_cast<uint16_t>((byte & 128) << 8 | (byte & 127) << 7));
      const uint16_t half = (byte & 127) == 127 ? 0x7fff : float_to_half(small * 256.0f);
      halves |= static_cast<uint32_t>(half) << 16 * i;
    }
    arguments.put(1 + pair, halves);
  }
}

// The truth table 0xEA: (a & b) | c.
void mask_and_add_bits(const Arguments& arguments) {
  arguments.put(0, (arguments.word(1) & arguments.word(2)) | arguments.word(3));
}

// The truth table 0x6A: (a & b) ^ c.
void mask_and_flip_bits(const Arguments& arguments) {
  arguments.put(0, (arguments.word(1) & arguments.word(2)) ^ arguments.word(3));
}

void larger_halves(const Arguments& arguments) {
  uint32_t pair = 0;
  for (int i = 0; i < 2; i++) {
    const uint32_t a = half_of(arguments.word(1), i), b = half_of(arguments.word(2), i);
    pair |= (a > b ? a : b) << 16 * i;
  }
  arguments.put(0, pair);
}

void unpack_bfloat16(const Arguments& arguments) {
  const uint32_t pair = arguments.word(1);
  arguments.put(0, bits_of(bfloat_to_float(half_of(pair, 0))));
  arguments.put(2, bits_of(bfloat_to_float(half_of(pair, 1))));
}

void and_or(const Arguments& arguments) {
  arguments.put(0, (arguments.word(1) & arguments.word(2)) | arguments.word(3));
}

void trap_below_zero(const Arguments& arguments) {
  if (arguments.number(0) < 0.0f) fail("trap");
}

void read_thread_index(const Arguments& arguments) { arguments.put(0, current->place.thread.x); }

// Every thread block has a multiprocessor of its own.
void read_multiprocessor(const Arguments& arguments) { arguments.put(0, current->place.block.x); }

void read_rank(const Arguments& arguments) { arguments.put(0, current->block.rank); }

void read_cluster_size(const Arguments& arguments) {
  arguments.put(0, static_cast<uint32_t>(current->block.cluster.blocks.size()));
}

// Of a whole warp.
void elect_first_lane(const Arguments& arguments) { arguments.put(0, current->place.thread.x % 32 == 0); }

}  // namespace emulator
