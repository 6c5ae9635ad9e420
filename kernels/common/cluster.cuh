// Thread blocks that work together and read each other's shared memory (clusters, sm_90): CLUSTER of them, ranks
// along the x of the grid. With CLUSTER 1 all of this is about one thread block, on any architecture.

#pragma once

#include "common/common.cuh"

#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)

// A barrier among all threads of all thread blocks of the cluster, in two halves: what a thread block does between
// them may go on while others read its shared memory.
__device__ __forceinline__ void arrive_at_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

// The same as the first half where nothing was written before but barriers (`publish_barriers`): it waits for no
// store.
__device__ __forceinline__ void announce_to_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Thread blocks of this cluster along x, where a launch says how many.
__device__ __forceinline__ int cluster_size() {
  uint32 size;
  asm("mov.u32 %0, %cluster_nctaid.x;" : "=r"(size));
  return size;
}

// Where `own`, in the shared memory of this thread block, lies in that of another one.
__device__ __forceinline__ uint32 address_in(const void* own, int rank) {
  const uint32 address = static_cast<uint32>(__cvta_generic_to_shared(own));
  uint32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// At an mbarrier of any thread block of the cluster, at its `address_in`, by who has written nothing that others
// are to read: with `.release.cluster` each arrival would be behind a fence for the whole GPU.
__device__ __forceinline__ void arrive_there(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ uint32 load_from(const uint32* own, int rank) {
  uint32 value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address_in(own, rank)) : "memory");
  return value;
}

// To where `own` is in another thread block, which has to have begun; there behind the next barrier of the cluster.
__device__ __forceinline__ void store_to(uint64* own, int rank, uint64 value) {
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(address_in(own, rank)), "l"(value) : "memory");
}

// 16 bytes to where `own` is in another thread block, and as many told to its mbarrier where `barrier` is here.
// They come at some time; who waits for the barrier sees them (st.async).
__device__ __forceinline__ void send_to(float4* own, const uint64* barrier, int rank, float4 value) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          address_in(own, rank)),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(address_in(barrier, rank))
      : "memory");
}

// The same with 64 bits, and with 32.
__device__ __forceinline__ void send_to(uint64* own, const uint64* barrier, int rank, uint64 value) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(address_in(own, rank)),
      "l"(value), "r"(address_in(barrier, rank))
      : "memory");
}
__device__ __forceinline__ void send_to(uint32* own, const uint64* barrier, int rank, uint32 value) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(address_in(own, rank)),
      "r"(value), "r"(address_in(barrier, rank))
      : "memory");
}
__device__ __forceinline__ void send_to(float* own, const uint64* barrier, int rank, float value) {
  send_to(reinterpret_cast<uint32*>(own), barrier, rank, __float_as_uint(value));
}

__device__ __forceinline__ uint64 load_from(const uint64* own, int rank) {
  uint64 value;
  asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(value) : "r"(address_in(own, rank)) : "memory");
  return value;
}
#else
#define IN_CLUSTERS
__device__ __forceinline__ void announce_to_cluster() {}
__device__ __forceinline__ void arrive_at_cluster() {}
__device__ __forceinline__ void wait_for_cluster() {}
__device__ __forceinline__ void sync_cluster() { __syncthreads(); }
__device__ __forceinline__ uint32 load_from(const uint32* own, int) { return *own; }
__device__ __forceinline__ uint64 load_from(const uint64* own, int) { return *own; }
template <typename T>
__device__ __forceinline__ void send_to(T* own, const uint64*, int, T value) {
  *own = value;
}
#endif
