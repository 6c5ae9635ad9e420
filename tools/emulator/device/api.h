// What a translated kernel asks of the runtime. Nothing here needs more than C, so that kernels compile quickly.

#pragma once

#include <stddef.h>

#include "vectors.h"

namespace emulator {

// Where in a kernel something is asked for; errors name it.
struct Site {
  const char* file;
  int line;
};

// Which thread runs.
struct Place {
  uint3 thread, block;
  dim3 block_size, grid_size;
  unsigned lane;
};
extern const Place* here;

// Ends the launch with an error that names the thread.
[[noreturn]] void fail(const char* why);

// Lets other warps go on: always, or now and then.
void pause();
void maybe_pause();

// Shared memory of the thread block that runs. `key` is the variable's own.
void* static_shared(const void* key, size_t bytes);
void* dynamic_shared();
uint32_t shared_address(const void* pointer);

// All threads of the thread block; for how many of them `vote` is true.
int sync_thread_block(bool vote, Site site);

// The lanes of `mask`; bit i of the result is the vote of lane i.
uint32_t vote_of_warp(uint32_t mask, bool vote, Site site);

// `value` becomes that of lane `source`, which must be in the mask. At most 16 bytes.
void shuffle(uint32_t mask, void* value, size_t bytes, unsigned source, Site site);

template <typename T, int NUMBER>
inline T& shared_variable() {
  static const char key = 0;
  return *static_cast<T*>(static_shared(&key, sizeof(T)));
}

}  // namespace emulator
