// How the warps of a thread block hand tiles in shared memory to one another (sm_90): an mbarrier counts the
// arrivals of a phase and, when all have come, starts the next one; who waits names the parity of the phase it
// waits for.

#pragma once

#include "common/common.cuh"

// `arrivals` end a phase. One thread calls this, then `publish_barriers`, then all threads synchronise.
__device__ __forceinline__ void init_barrier(uint32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// As soon as all cp.async of this thread so far have landed.
__device__ __forceinline__ void arrive_when_copied(uint32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and the phase lasts until copies have brought so many bytes.
__device__ __forceinline__ void expect_bytes(uint32 barrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Until the phase of this parity has ended.
__device__ __forceinline__ void wait(uint32 barrier, uint32 parity) {
  uint32 done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

// A ring of SIZE buffers: which one is next, and the parity of the phase it is in.
template <int SIZE>
struct Ring {
  int stage = 0;
  uint32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == SIZE) {
      stage = 0;
      parity ^= 1;
    }
  }

  // As many advances.
  __device__ __forceinline__ void skip(int count) {
    parity ^= (stage + count) / SIZE % 2;
    stage = (stage + count) % SIZE;
  }
};

// A numbered barrier among `threads` threads, of which some only arrive (barrier 0 is __syncthreads').
__device__ __forceinline__ void sync_named(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
