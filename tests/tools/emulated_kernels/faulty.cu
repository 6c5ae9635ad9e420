// Kernels that are wrong on purpose beside some that are right, for test_emulator_faults.py.
//
// Grid: (1) for all of them; 64 threads, 256 where 256 numbers are turned round.

#include "common/mbarrier.cuh"
#include "common/async_copy.cuh"

extern "C" __global__ void __launch_bounds__(256) reverse(int* out, const int* in) {
  __shared__ int kept[256];
  kept[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = kept[255 - threadIdx.x];
}

extern "C" __global__ void reverse_too_soon(int* out, const int* in) {
  __shared__ int kept[256];
  kept[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = kept[255 - threadIdx.x];
}

extern "C" __global__ void write_over_too_soon(int* out, const int* in) {
  __shared__ int kept[256];
  kept[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const int mine = kept[255 - threadIdx.x];
  kept[threadIdx.x] = 0;
  out[threadIdx.x] = mine;
}

template <bool WAITS>
__device__ void copy(int* out, const int* in) {
  extern __shared__ __align__(16) int tile[];
  copy_16_async(tile + 4 * threadIdx.x, in + 4 * threadIdx.x);
  commit_copies();
  if (WAITS) wait_copies<0>();
  for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = tile[4 * threadIdx.x + i];
}
extern "C" __global__ void copy_async(int* out, const int* in) { copy<true>(out, in); }
extern "C" __global__ void copy_async_too_soon(int* out, const int* in) { copy<false>(out, in); }

// What was read is written over by a copy of zeros.
template <bool WAITS>
__device__ void copy_over(int* out, const int* in) {
  __shared__ alignas(16) int tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const int mine = WAITS ? tile[63 - threadIdx.x] : 0;
  if (WAITS) __syncthreads();
  if (threadIdx.x < 16) copy_16_async(tile + 4 * threadIdx.x, in, false);
  commit_copies();
  out[threadIdx.x] = WAITS ? mine : tile[63 - threadIdx.x];
  wait_copies<0>();
}
extern "C" __global__ void copy_over_what_was_read(int* out, const int* in) { copy_over<true>(out, in); }
extern "C" __global__ void copy_over_too_soon(int* out, const int* in) { copy_over<false>(out, in); }

template <bool WAITS, bool STAYS>
__device__ void fetch(int* out, const int* in) {
  __shared__ alignas(16) int tile[64];
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) init_barrier(place, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place), "r"(256) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(in), "r"(256), "r"(place)
        : "memory");
  }
  if (WAITS) wait(place, 0);
  out[threadIdx.x] = tile[threadIdx.x];
  if (STAYS) wait(place, 0);
}
extern "C" __global__ void bulk(int* out, const int* in) { fetch<true, true>(out, in); }
extern "C" __global__ void bulk_too_soon(int* out, const int* in) { fetch<false, true>(out, in); }
extern "C" __global__ void bulk_left_behind(int* out, const int* in) { fetch<false, false>(out, in); }

extern "C" __global__ void half_of_them_wait(int* out) {
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) init_barrier(place, 2);
  __syncthreads();
  if (threadIdx.x == 0) arrive(place);
  if (threadIdx.x < 32) wait(place, 0);
  __syncthreads();
}

extern "C" __global__ void poll(int* out) {
  int value;
  do {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(out) : "memory");
  } while (value == 0);
}

extern "C" __global__ void arrive_twice(int* out) {
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) init_barrier(place, 1);
  __syncthreads();
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place), "r"(16) : "memory");
}

extern "C" __global__ void misaligned(int* out) {
  extern __shared__ __align__(16) int tile[];
  copy_16_async(tile + 1, out);
}

extern "C" __global__ void behind_the_end(int* out) {
  extern __shared__ int tile[];
  tile[256 * (threadIdx.x + 1)] = 1;
}

extern "C" __global__ void beside(int* out) {
  __shared__ int some[8];
  some[8 + threadIdx.x] = 1;
}

extern "C" __global__ void far_address(int* out) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(1 << 20), "r"(1) : "memory");
}

extern "C" __global__ void nowhere(int* out) {
  if (threadIdx.x == 33) *reinterpret_cast<int*>(8 * static_cast<int64>(threadIdx.x)) = 1;
}

// What lies beside the first 256 numbers.
extern "C" __global__ void read_behind(int* out) {
  const int value = *static_cast<volatile int*>(out + 193 + threadIdx.x);
  if (value == 7) out[0] = value;
}

extern "C" __global__ void read_before(int* out) {
  const int value = *(static_cast<volatile int*>(out + threadIdx.x) - 63);
  if (value == 7) out[0] = value;
}

extern "C" __global__ void write_behind(int* out) { out[193 + threadIdx.x] = 1; }

extern "C" __global__ void write_before(int* out) { *(out + threadIdx.x - 63) = 1; }

extern "C" __global__ void copy_async_behind(int* out) {
  __shared__ alignas(16) int tile[256];
  copy_16_async(tile + 4 * threadIdx.x, out + 4 + 4 * threadIdx.x);
}

extern "C" __global__ void bulk_behind(int* out) {
  __shared__ alignas(16) int tile[64];
  __shared__ uint64 barrier;
  const uint32 place = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(tile);
  if (threadIdx.x) return;
  init_barrier(place, 1);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place), "r"(256) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(out + 196), "r"(256), "r"(place)
               : "memory");
  wait(place, 0);
}

extern "C" __global__ void trap(int* out) {
  if (threadIdx.x == 40) __trap();
}

extern "C" __global__ void not_in_the_mask(int* out) { out[threadIdx.x] = __shfl_sync(0xffff, 1, 0); }

extern "C" __global__ void two_functions(int* out) {
  if (threadIdx.x % 2) {
    out[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
  } else {
    out[threadIdx.x] = __ballot_sync(0xffffffff, 1);
  }
}

extern "C" __global__ void unknown(int* out) { asm volatile("bfind.u32 %0, %0;" : "+r"(*out)); }
