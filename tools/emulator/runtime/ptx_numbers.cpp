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

}  // namespace emulator
