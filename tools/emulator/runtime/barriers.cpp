#include "barriers.h"

#include <string.h>

#include "failure.h"
#include "grid.h"

namespace emulator {
namespace {

constexpr uint32_t ALL = ~0u;

Meeting& meeting_of(Warp& warp, uint32_t mask) {
  for (Meeting& meeting : warp.meetings) {
    if (meeting.mask == mask) return meeting;
  }
  warp.meetings.push_back({mask});
  return warp.meetings.back();
}

void open(Barrier& barrier) {
  barrier.result = barrier.votes;
  barrier.arrived = 0;
  barrier.votes = 0;
  barrier.generation++;
}

}  // namespace

void settle_thread_block_barrier(ThreadBlock& block) {
  Barrier& barrier = block.barriers[0];
  if (block.live > 0 && barrier.arrived >= block.live) open(barrier);
}

void count_in_cluster(Cluster& cluster) {
  if (++cluster.present < cluster.blocks.size() * cluster.blocks[0]->threads.size()) return;
  cluster.present = 0;
  for (const ThreadBlock* block : cluster.blocks) {
    for (const auto& thread : block->threads) cluster.present += thread->has_ended;
  }
  cluster.generation++;
}

int sync_thread_block(bool vote, Site site) {
  current->site = site;
  Barrier& barrier = current->block.barriers[0];
  const uint32_t generation = barrier.generation;
  barrier.arrived++;
  barrier.votes += vote;
  settle_thread_block_barrier(current->block);
  wait_for_change(&barrier.generation, ALL, generation, "__syncthreads");
  return barrier.result;
}

void arrive_at_named(uint32_t number, uint32_t num_threads, bool waits) {
  if (number == 0 || number >= NUM_BARRIERS) fail("a named barrier has a number from 1 to 15");
  if (num_threads == 0 || num_threads % WARP_SIZE) fail("a named barrier is for whole warps");
  Barrier& barrier = current->block.barriers[number];
  if (barrier.arrived == 0) barrier.expected = num_threads;
  if (barrier.expected != num_threads) fail("threads arrive at a named barrier with different numbers of threads");
  const uint32_t generation = barrier.generation;
  if (++barrier.arrived == num_threads) open(barrier);
  if (waits) wait_for_change(&barrier.generation, ALL, generation, "a named barrier");
}

void arrive_at_cluster() {
  Cluster& cluster = current->block.cluster;
  current->cluster_arrivals = cluster.generation + 1;
  count_in_cluster(cluster);
}

void wait_for_cluster() {
  const Cluster& cluster = current->block.cluster;
  wait_for_change(&cluster.generation, ALL, current->cluster_arrivals - 1, "the cluster");
}

void meet(uint32_t mask, void* payload, void (*finish)(void* const* payloads, uint32_t mask)) {
  const uint32_t own = 1u << current->place.lane;
  if (!(mask & own)) fail("a lane is not in the mask of the warp function that it calls");
  Meeting& meeting = meeting_of(current->block.warps[current->warp], mask);
  if (meeting.arrived == 0) {
    meeting.finish = finish;
    meeting.site = current->site;
  }
  if (meeting.finish != finish) {
    fail("lanes of a warp meet in different functions, another one at " + text_of(meeting.site));
  }
  meeting.arrived |= own;
  meeting.payloads[current->place.lane] = payload;
  const uint32_t generation = meeting.generation;
  if (meeting.arrived != mask) {
    wait_for_change(&meeting.generation, ALL, generation, "lanes of its warp");
    return;
  }
  finish(meeting.payloads, mask);
  memset(meeting.payloads, 0, sizeof(meeting.payloads));
  meeting.arrived = 0;
  meeting.generation++;
}

}  // namespace emulator
