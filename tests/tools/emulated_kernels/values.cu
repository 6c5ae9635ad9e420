// What test_emulator_values.py compares with torch: conversions, products, matrices, exchanges between lanes.

#define CLUSTER 2
#include "common/cluster.cuh"
#include "common/mma.cuh"
#include "common/wgmma.cuh"

// Grid: (65536 / 256), 256 threads.
extern "C" __global__ void widen(float* of_half,    // [65536]
                                 float* of_bfloat,  // [65536]
                                 const __half* halves, const __nv_bfloat16* bfloats) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  of_half[i] = __half2float(halves[i]);
  of_bfloat[i] = __bfloat162float(bfloats[i]);
}

// Grid: (numbers / 256), 256 threads.
extern "C" __global__ void narrow(__half* halves, __nv_bfloat16* bfloats, const float* numbers) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  halves[i] = __float2half_rn(numbers[i]);
  bfloats[i] = __float2bfloat16_rn(numbers[i]);
}

// Grid: (1), 32 threads: A comes through shared memory, B by its fragments.
extern "C" __global__ void multiply(float* d,          // [16, 8]
                                    const Element* a,  // [16, 16]
                                    const Element* b   // [8, 16], transposed
) {
  __shared__ alignas(16) Element rows[16][16];
  const int lane = threadIdx.x, g = lane / 4, q = lane % 4;
  for (int i = lane; i < 256; i += 32) rows[i / 16][i % 16] = a[i];
  __syncwarp();
  uint32 left[4];
  load_matrices(left, shared_address(&rows[lane % 16][lane / 16 * 8]));
  const uint32* pairs = reinterpret_cast<const uint32*>(b + 16 * g);
  const uint32 right[2] = {pairs[q], pairs[q + 4]};
  float sums[4] = {};
  mma_16x8x16<Element>(sums, left, right);
  for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = sums[i];
}

// Row r and k of a matrix of core matrices of 8 rows of 16 bytes, those along k 128 bytes apart, rows 256.
__device__ int core_place(int row, int k) { return row / 8 * 128 + k / 8 * 64 + row % 8 * 8 + k % 8; }

template <bool WAITS>
__device__ void multiply_by_warpgroup(float* d, const Element* a, const Element* b) {
  __shared__ alignas(128) Element left[64 * 16], right[64 * 16];
  for (int i = threadIdx.x; i < 64 * 16; i += 128) {
    left[core_place(i / 16, i % 16)] = a[i];
    right[core_place(i / 16, i % 16)] = b[i];
  }
  show_to_products();
  __syncthreads();
  const auto address = [](const void* x) { return static_cast<uint32>(__cvta_generic_to_shared(x)); };
  float sums[32] = {};
  fence_products();
  Product<64>::shared_shared(sums, matrix_descriptor(address(left), 128, 256),
                             matrix_descriptor(address(right), 128, 256), false);
  commit_products();
  if (WAITS) wait_products<0>();
  settle(sums);
  const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  for (int i = 0; i < 32; i++) {
    d[(threadIdx.x / 32 * 16 + g + i / 2 % 2 * 8) * 64 + i / 4 * 8 + 2 * q + i % 2] = sums[i];
  }
  wait_products<0>();
}

// Grid: (1), 128 threads; d [64, 64], a [64, 16], b [64, 16], transposed.
extern "C" __global__ void multiply_64(float* d, const Element* a, const Element* b) {
  multiply_by_warpgroup<true>(d, a, b);
}
extern "C" __global__ void multiply_64_too_soon(float* d, const Element* a, const Element* b) {
  multiply_by_warpgroup<false>(d, a, b);
}

// Grid: (1), 32 threads; out [5, 32].
extern "C" __global__ void exchange(int* out) {
  const int lane = threadIdx.x;
  out[lane] = __shfl_sync(FULL_WARP, lane, lane + 1, 8);
  out[32 + lane] = __shfl_up_sync(FULL_WARP, lane, 3);
  out[64 + lane] = __shfl_down_sync(FULL_WARP, lane, 3);
  out[96 + lane] = __shfl_xor_sync(FULL_WARP, lane, 5);
  out[128 + lane] = __ballot_sync(FULL_WARP, lane % 3 == 0);
}

// Grid: (4), 64 threads: a thread block has what its neighbour wrote; half of the threads end before the barriers.
extern "C" __global__ void __cluster_dims__(2, 1, 1) neighbours(int* out) {  // [4]
  __shared__ uint32 own;
  if (threadIdx.x >= 32) return;
  if (threadIdx.x == 0) own = 10 + blockIdx.x;
  sync_cluster();
  if (threadIdx.x == 0) out[blockIdx.x] = load_from(&own, 1 - blockIdx.x % 2);
  sync_cluster();
}

// Grid: (64), 64 threads: the last thread block to arrive adds up what all of them left.
extern "C" __global__ void last_adds(int* total, int* parts, unsigned* arrived) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x;
    __threadfence();
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  if (__syncthreads_count(threadIdx.x == 0 && is_last) == 0) return;
  atomicAdd(total, parts[threadIdx.x]);
}
