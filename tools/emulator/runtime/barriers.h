// Barriers in hardware: of a thread block, numbered ones, of a cluster; and lanes that meet in a function of a
// warp.

#pragma once

#include <stdint.h>

namespace emulator {

struct Cluster;
struct ThreadBlock;

// Barrier 0 is for all threads that have not ended: one of them has arrived, or ended.
void settle_thread_block_barrier(ThreadBlock& block);

// A thread has arrived at the cluster's barrier, or ended before it did.
void count_in_cluster(Cluster& cluster);

// A barrier for `num_threads` threads, 1 to 15, of which those wait that say so.
void arrive_at_named(uint32_t number, uint32_t num_threads, bool waits);

// In two halves.
void arrive_at_cluster();
void wait_for_cluster();

// The last lane of `mask` to come calls `finish` with what all of them have brought, null for lanes not in the
// mask.
void meet(uint32_t mask, void* payload, void (*finish)(void* const* payloads, uint32_t mask));

}  // namespace emulator
