#include "grid.h"

#include "barriers.h"
#include "failure.h"
#include "wgmma.h"

namespace emulator {

Launch* launch_now;
Thread* current;
const Place* here;

namespace {

unsigned count_of(const unsigned (&size)[3]) { return size[0] * size[1] * size[2]; }

void run_thread(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  launch_now->body(launch_now->data);
  thread.copies.land_all();
  thread.stores.land_all();
  thread.has_ended = true;
  thread.block.live--;
  settle_thread_block_barrier(thread.block);
  const bool has_arrived = thread.cluster_arrivals > thread.block.cluster.generation;
  if (!has_arrived) count_in_cluster(thread.block.cluster);
}

}  // namespace

Thread::Thread(ThreadBlock& block, unsigned index)
    : block(block), index(index), warp(index / WARP_SIZE), fiber(run_thread, this) {
  const Shape& shape = launch_now->shape;
  const unsigned width = shape.block[0], height = shape.block[1];
  place.thread = {index % width, index / width % height, index / width / height};
  place.block = block.index;
  place.block_size = {shape.block[0], shape.block[1], shape.block[2]};
  place.grid_size = {shape.grid[0], shape.grid[1], shape.grid[2]};
  place.lane = index % WARP_SIZE;
}

ThreadBlock::ThreadBlock(const Shape& shape, uint3 index, unsigned rank, Cluster& cluster)
    : index(index), rank(rank), cluster(cluster), memory(shape.shared_bytes), live(count_of(shape.block)) {
  warps.resize((live + WARP_SIZE - 1) / WARP_SIZE);
  warpgroups.resize((live + WARPGROUP_SIZE - 1) / WARPGROUP_SIZE);
  for (unsigned i = 0; i < live; i++) threads.push_back(std::make_unique<Thread>(*this, i));
}

ThreadBlock::~ThreadBlock() = default;

void wait_for_change(const uint32_t* word, uint32_t mask, uint32_t old, const char* what) {
  if ((*word & mask) != old) return;
  current->wait = {word, mask, old, what};
  Fiber::leave();
  current->wait.word = nullptr;
}

void pause() {
  if (current == nullptr) return;
  current->polls = true;
  Fiber::leave();
}

void maybe_pause() {
  if (launch_now->chance.one_in(4)) pause();
}

}  // namespace emulator
