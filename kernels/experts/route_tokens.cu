// The experts of each token of a mixture, and how much each of them counts (Shazeer et al. 2017, arXiv 1701.06538).
//
//   weights = softmax(logits) of the PER_TOKEN highest logits, RENORMALISED: of those alone
//
// A warp has a token; a lane every 32nd expert. Of equal logits the first comes first. Whatever the logits are, NaN
// among them, each expert is one that exists, and no token has one twice.

#include "common/common.cuh"
#include "common/dependent_launch.cuh"

#ifndef NUM_EXPERTS
#define NUM_EXPERTS 64
#endif
#ifndef PER_TOKEN
#define PER_TOKEN 8
#endif
#ifndef RENORMALISED
#define RENORMALISED 0
#endif

constexpr int NUM_WARPS = 4;
constexpr int PER_LANE = ceil_div(NUM_EXPERTS, WARP_SIZE);
constexpr int NOBODY = 0x7fffffff;
static_assert(PER_LANE <= 32, "a bit for each expert of a lane");
static_assert(PER_TOKEN <= WARP_SIZE && PER_TOKEN <= NUM_EXPERTS, "a lane keeps one of the chosen");

// Grid: (ceil(num_tokens / NUM_WARPS)), NUM_WARPS * 32 threads.
extern "C" __global__ void __launch_bounds__(NUM_WARPS* WARP_SIZE)
    route_tokens(int* __restrict__ experts,           // [num_tokens, PER_TOKEN], the most likely first
                 float* __restrict__ weights,         // [num_tokens, PER_TOKEN]
                 const Element* __restrict__ logits,  // [num_tokens, NUM_EXPERTS]
                 int num_tokens) {
  let_next_kernel_start();
  const int lane = threadIdx.x % WARP_SIZE, token = blockIdx.x * NUM_WARPS + threadIdx.x / WARP_SIZE;
  if (token >= num_tokens) return;
  float values[PER_LANE], highest = NEGATIVE_INFINITY, all = 0.0f;
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) {
    const int expert = lane + i * WARP_SIZE;
    values[i] = NEGATIVE_INFINITY;
    if (expert < NUM_EXPERTS) {
      const float logit = to_float(logits[static_cast<int64>(token) * NUM_EXPERTS + expert]);
      if (logit == logit) values[i] = logit;
    }
    highest = fmaxf(highest, values[i]);
  }
  highest = warp_max(highest);
#pragma unroll
  for (int i = 0; i < PER_LANE; i++) all += expf(values[i] - highest);
  all = warp_sum(all);

  uint32 taken = 0;  // of this lane's experts
  int kept = 0;
  float weight = 0.0f, chosen = 0.0f;
#pragma unroll 1
  for (int slot = 0; slot < PER_TOKEN; slot++) {
    float best = NEGATIVE_INFINITY;
    int expert = NOBODY;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
      const bool is_there = lane + i * WARP_SIZE < NUM_EXPERTS && (taken >> i & 1) == 0;
      if (is_there && (expert == NOBODY || values[i] > best)) {
        best = values[i];
        expert = lane + i * WARP_SIZE;
      }
    }
#pragma unroll
    for (int step = WARP_SIZE / 2; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(FULL_WARP, best, step);
      const int other_expert = __shfl_xor_sync(FULL_WARP, expert, step);
      if (other > best || (other == best && other_expert < expert)) {
        best = other;
        expert = other_expert;
      }
    }
    if (expert % WARP_SIZE == lane) taken |= 1u << expert / WARP_SIZE;
    const float likely = expf(best - highest);
    chosen += likely;
    if (slot == lane) {
      kept = expert;
      weight = likely;
    }
  }
  if (lane < PER_TOKEN) {
    experts[token * PER_TOKEN + lane] = kept;
    weights[token * PER_TOKEN + lane] = weight / (RENORMALISED ? chosen : all);
  }
}
