// The experts of each token of a mixture, and how much each of them counts (Shazeer et al. 2017, arXiv 1701.06538);
// see route.cuh. A warp has a token.

#include "common/dependent_launch.cuh"
#include "experts/route.cuh"

constexpr int NUM_WARPS = 4;

// Grid: (ceil(num_tokens / NUM_WARPS)), NUM_WARPS * 32 threads.
extern "C" __global__ void __launch_bounds__(NUM_WARPS* WARP_SIZE)
    route_tokens(int* __restrict__ experts,           // [num_tokens, PER_TOKEN], the most likely first
                 float* __restrict__ weights,         // [num_tokens, PER_TOKEN]
                 const Element* __restrict__ logits,  // [num_tokens, NUM_EXPERTS], which the kernel before may make
                 int num_tokens) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int lane = threadIdx.x % WARP_SIZE, token = blockIdx.x * NUM_WARPS + threadIdx.x / WARP_SIZE;
  if (token >= num_tokens) return;
  const Route found = route(logits + static_cast<int64>(token) * NUM_EXPERTS);
  if (lane < PER_TOKEN) {
    experts[token * PER_TOKEN + lane] = found.expert;
    weights[token * PER_TOKEN + lane] = found.weight;
  }
}
