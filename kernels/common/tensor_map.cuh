// Tiles of a matrix between global and shared memory (sm_90): one thread asks, and in shared memory the 16-byte
// pieces of rows of 128 or 64 bytes change places as `swizzled` (wgmma.cuh) says. What lies beside the matrix comes
// as zeros. The matrix, and the size of a tile, are in a tensor map that the host makes (jit/tensor_map.py).

#pragma once

#include "common/mbarrier.cuh"
#include "common/mma.cuh"

struct TensorMap {
  alignas(64) uint64 words[16];  // what they say is the driver's business
};

// By one thread, early: a map comes from memory as everything does.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The tile whose first element is `column` of row `row`; its bytes are told to `barrier`.
__device__ __forceinline__ void copy_tile(void* to, const TensorMap& map, int column, int row, uint32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// The same, by a policy for the L2 cache.
__device__ __forceinline__ void copy_tile(void* to, const TensorMap& map, int column, int row, uint32 barrier,
                                          uint64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

// The same to where `to` is in every thread block of the cluster whose bit is set in `ranks`, each with its own
// mbarrier.
__device__ __forceinline__ void copy_tile_to_all(void* to, const TensorMap& map, int column, int row,
                                                 uint32 barrier, int ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<unsigned short>(ranks))
      : "memory");
}

// A tile the other way, from shared memory into the matrix and not beside it. By one thread, after all who wrote
// the tile have shown it to copies; it may be written again when `wait_stores_read` says so, and the thread stays
// until `wait_stores`.
__device__ __forceinline__ void store_tile(const TensorMap& map, int column, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(column), "r"(row), "r"(shared_address(from))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until at most PENDING tiles are still to be read out of shared memory.
template <int PENDING>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
