// Who takes part in a launch: threads in warps in thread blocks in clusters, and what each of them holds.

#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "../device/entry.h"
#include "chance.h"
#include "copies.h"
#include "fibers.h"
#include "shared_memory.h"

namespace emulator {

constexpr int WARP_SIZE = 32;
constexpr int WARPGROUP_SIZE = 128;
constexpr int NUM_BARRIERS = 16;

struct ThreadBlock;

// A thread waits while the bits of `mask` in `*word` are `old`.
struct Wait {
  const uint32_t* word = nullptr;  // null: it can go on
  uint32_t mask = 0, old = 0;
  const char* what = "";

  bool is_over() const { return word == nullptr || (*word & mask) != old; }
};

struct Thread {
  Thread(ThreadBlock& block, unsigned index);

  ThreadBlock& block;
  unsigned index, warp;
  Place place;
  Site site = {"", 0};  // where it was last seen in the kernel
  Wait wait;
  bool polls = false;             // it only looks whether something has come
  AsyncCopies copies, stores;     // cp.async; bulk copies to global memory
  uint64_t last_landing = 0;      // when its copies that tell an mbarrier have landed
  uint32_t cluster_arrivals = 0;  // at the barrier of its cluster
  bool has_ended = false;
  Fiber fiber;
};

// Lanes of one mask on their way into one function.
struct Meeting {
  uint32_t mask, arrived = 0, generation = 0;
  void (*finish)(void* const* payloads, uint32_t mask) = nullptr;
  Site site = {"", 0};
  void* payloads[WARP_SIZE] = {};
};

// What lanes and warps of a warpgroup have asked for; wgmma.cpp knows what is in it.
struct Warpgroup;

struct Warp {
  std::deque<Meeting> meetings;  // one for each mask; they stay where they are
  uint64_t sleeps_until = 0;     // a round: others are quicker
};

// `__syncthreads` (number 0) and named barriers.
struct Barrier {
  uint32_t arrived = 0, expected = 0, generation = 0;
  int votes = 0, result = 0;
};

struct Cluster {
  std::vector<ThreadBlock*> blocks;
  uint32_t present = 0, generation = 0;  // of its barrier: threads that have arrived, or ended
};

struct ThreadBlock {
  ThreadBlock(const Shape& shape, uint3 index, unsigned rank, Cluster& cluster);
  ~ThreadBlock();

  uint3 index;
  unsigned rank;  // in its cluster
  Cluster& cluster;
  SharedMemory memory;
  Barrier barriers[NUM_BARRIERS];
  std::vector<std::unique_ptr<Warpgroup>> warpgroups;
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Thread>> threads;
  unsigned live;  // threads that have not ended
};

// The launch that runs; there is one at a time.
struct Launch {
  Shape shape;
  void (*body)(void* data);
  void* data;
  Chance chance;
  uint64_t round = 0;
  Landings landings;
};

extern Launch* launch_now;
extern Thread* current;  // null while the runtime itself is at work

// The thread that runs waits for a change; others go on meanwhile.
void wait_for_change(const uint32_t* word, uint32_t mask, uint32_t old, const char* what);

}  // namespace emulator
