// Which continuations of a search's beams go on, and in whose place: a step of beam search over the most likely
// tokens that `top_logprobs` has found of each beam.
//
//   sum[continuation] = sum[beam] + logprob[token], in float64, as the host has it
//
// One warp a search, a lane a beam. A beam's tokens are in order, so the best continuation of all is the best of 32
// heads: it is taken `num_choices` times, and its lane goes on to its next token. Of equals the better beam's is
// first. What was taken is ranked, which the host reads; the best `width` that do not end are the next beams. The
// first one of a beam stays in its place, the others take the places of beams that have none. Nothing but the
// search's own numbers is changed: blocks and tokens are `move_beams`'.

#include "common/common.cuh"

constexpr int MAX_WIDTH = WARP_SIZE;  // as pagedchat/ops/sampling/kernels.py says
constexpr int MAX_CHOICES = 64;
constexpr int HEAD_WORDS = 4 + MAX_CHOICES;  // width, num_choices, num_stops, padding, tokens that end a beam
static_assert(MAX_CHOICES == 2 * WARP_SIZE, "a lane looks at two tokens that end a beam");

struct Ranked {
  double sum;
  int beam, token_id;
};

// The lane with the largest value, the first of equals.
__device__ __forceinline__ int best_lane(double value, int lane) {
#pragma unroll
  for (int lanes = WARP_SIZE / 2; lanes > 0; lanes /= 2) {
    const double other = __shfl_xor_sync(FULL_WARP, value, lanes);
    const int others = __shfl_xor_sync(FULL_WARP, lane, lanes);
    if (other > value || (other == value && others < lane)) value = other, lane = others;
  }
  return lane;
}

// The place of the `count`-th bit that is set, from 0 on.
__device__ __forceinline__ int nth_bit(uint32 bits, int count) {
  for (; count > 0; count--) bits &= bits - 1;
  return __ffs(bits) - 1;
}

// Grid: (num_searches), one warp
extern "C" __global__ void __launch_bounds__(WARP_SIZE) choose_beams(
    Ranked* __restrict__ ranked,         // [history_len, num_searches, MAX_CHOICES], strided, the best first
    int* __restrict__ sources,           // [num_rows]: which row's beam goes on in this row
    int* __restrict__ next_tokens,       // [num_rows]: with which token
    int* __restrict__ rows,              // [num_searches, MAX_WIDTH]: of the beams, the best first
    double* __restrict__ sums,           // [num_searches, MAX_WIDTH]: theirs
    const int* __restrict__ heads,       // [num_searches, HEAD_WORDS]
    const int* __restrict__ token_ids,   // [num_rows, stride]: of each row one, then the most likely ones
    const float* __restrict__ logprobs,  // [num_rows, stride]: theirs
    const int* __restrict__ step,        // [1]: one more than that of the step, which says where in the history
    int stride, int history_len, int history_stride) {
  __shared__ Ranked going_on[MAX_WIDTH];
  const int search = blockIdx.x, lane = threadIdx.x;
  const int* head = heads + search * HEAD_WORDS;
  const int width = head[0], num_choices = head[1], num_stops = head[2];
  const int first_stop = lane < num_stops ? head[4 + lane] : -1;
  const int second_stop = lane + WARP_SIZE < num_stops ? head[4 + lane + WARP_SIZE] : -1;
  rows += search * MAX_WIDTH, sums += search * MAX_WIDTH;
  ranked += (*step - 1) % history_len * history_stride + search * MAX_CHOICES;

  const bool lives = lane < width;
  const int row = lives ? rows[lane] : 0;
  const double sum = lives ? sums[lane] : 0.0;
  const int* of_row = token_ids + static_cast<int64>(row) * stride + 1;
  const float* of_tokens = logprobs + static_cast<int64>(row) * stride + 1;
  const double nothing = static_cast<double>(NEGATIVE_INFINITY);
  int next = 0, num_left = 0;
  int token = lives ? of_row[0] : -1;
  double value = lives ? sum + static_cast<double>(of_tokens[0]) : nothing;
  for (int i = 0; i < num_choices; i++) {
    const int best = best_lane(value, lane);
    const int chosen = __shfl_sync(FULL_WARP, token, best);
    const bool ends = __any_sync(FULL_WARP, chosen == first_stop || chosen == second_stop);
    if (lane == best) {
      const Ranked found = {value, lane, token};
      ranked[i] = found;
      if (!ends && num_left < width) going_on[num_left] = found;
      next += 1;
      token = next < num_choices ? of_row[next] : -1;
      value = next < num_choices ? sum + static_cast<double>(of_tokens[next]) : nothing;
    }
    num_left += !ends;
  }
  __syncwarp();

  const bool goes_on = lane < min(num_left, width);
  const Ranked mine = goes_on ? going_on[lane] : Ranked{};
  const uint32 of_beam = goes_on ? 1u << mine.beam : 0;
  uint32 in_use = of_beam;
#pragma unroll
  for (int lanes = WARP_SIZE / 2; lanes > 0; lanes /= 2) in_use |= __shfl_xor_sync(FULL_WARP, in_use, lanes);
  bool is_first = true;  // of its beam
  for (int i = 0; i < lane && goes_on; i++) is_first = is_first && going_on[i].beam != mine.beam;
  const uint32 forks = __ballot_sync(FULL_WARP, goes_on && !is_first);
  const uint32 all = width == MAX_WIDTH ? FULL_WARP : (1u << width) - 1;
  const int fork = __popc(forks & ((1u << lane) - 1));
  const int place = is_first ? mine.beam : nth_bit(all & ~in_use, fork);
  const int source_row = __shfl_sync(FULL_WARP, row, goes_on ? mine.beam : lane);
  const int own_row = __shfl_sync(FULL_WARP, row, goes_on ? place : lane);
  if (!goes_on) return;
  sources[own_row] = source_row;
  next_tokens[own_row] = mine.token_id;
  rows[lane] = own_row;
  sums[lane] = mine.sum;
}
