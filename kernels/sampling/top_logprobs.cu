// How likely the chosen token of each row was, its rank, and the most likely tokens beside it.
//
//   logprob[token] = logit - max - log(sum over the row of exp(logit - max))
//   rank           = 1 + tokens that are likelier, or as likely with a lower id
//
// One thread block a row, which it reads once: sum and rank come out of that, and the likeliest token of every
// eight threads. The best `count` tokens of a row are with the `count` best of these groups of threads, and none of
// them is below the last one's: so only what those groups have read is looked at again, and only what reaches that
// bar is sorted. Keys of tokens are all different (argmax.cuh), so whatever the order of threads, the result is the
// same.
// NOTE: however many rows there are, the time is that of one row's chain of loads and barriers. So the first logits
// are asked for before it is known what for, and as few barriers follow as will do.

#include "common/argmax.cuh"
#include "common/row_slice.cuh"

constexpr int NUM_THREADS = 1024;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int GROUP_LANES = 8;
constexpr int NUM_GROUPS = NUM_THREADS / GROUP_LANES;
constexpr int GROUPS_OF_WARP = WARP_SIZE / GROUP_LANES;
constexpr int MAX_COUNT = 64;     // as pagedchat/ops/sampling/kernels.py says
constexpr int TURN_PIECES = 512;  // looked at again at a time
constexpr int MOST_LEFT = 1024;   // keys that a turn may find there
constexpr int MOST_SORTED = MOST_LEFT + TURN_PIECES * PIECE;
static_assert(NUM_GROUPS >= MAX_COUNT, "every token may be with another group");
static_assert(MOST_LEFT >= MAX_COUNT, "the best ones stay from turn to turn");
static_assert(MAX_COUNT % WARP_SIZE == 0, "whole warps write results");
static_assert(NUM_WARPS == WARP_SIZE, "a lane for what each warp has found");

struct Shared {
  uint64 best[NUM_GROUPS];
  float most[NUM_WARPS], sums[NUM_WARPS];  // the largest logit of each warp, and its sum in parts of e^most
  uint32 likelier[NUM_WARPS];
  int winners[MAX_COUNT];  // the groups with the best tokens; -1 where there are no more
  uint64 bar;              // no token below it is wanted
  uint64 keys[MOST_SORTED], kept[MAX_COUNT];
  int num_keys;
};

// What a thread has seen of a row.
struct Seen {
  float most = NEGATIVE_INFINITY;  // the largest logit,
  int best = -1;                   // and the first token that has it
  float sum = 0.0f;                // in parts of e^most
  uint32 likelier = 0;             // tokens before the chosen one, in the order of likelihood
};

// Where a logit counts that is above another one.
__device__ __forceinline__ float next_above(float value) {
  return argmax_value(static_cast<uint64>(ordered_bits(value) + 1) << 32);
}

// One piece more. Most of what it does for each logit is the sum: the best token is looked for where there is a new
// one, and a token is compared with the chosen one as to its place where they lie side by side.
__device__ __forceinline__ void see(Seen& seen, int first, const float (&logits)[PIECE], int vocab_size, int chosen,
                                    float of_chosen, float above_chosen) {
  float most_here = logits[0];
#pragma unroll
  for (int j = 1; j < PIECE; j++) most_here = fmaxf(most_here, logits[j]);
  if (most_here > seen.most || seen.best < 0) {
    if (most_here > seen.most) seen.sum *= exp2_fast((seen.most - most_here) * LOG2_E), seen.most = most_here;
#pragma unroll
    for (int j = PIECE - 1; j >= 0; j--) {
      const int token = first + j;
      if (logits[j] == most_here && static_cast<uint32>(token) < static_cast<uint32>(vocab_size)) seen.best = token;
    }
  }
  const float reference = seen.most == NEGATIVE_INFINITY ? 0.0f : seen.most;
#pragma unroll
  for (int j = 0; j < PIECE; j++) seen.sum += exp2_fast((logits[j] - reference) * LOG2_E);
  if (first < 0 || (first <= chosen && chosen < first + PIECE)) {
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
      const bool is_before = static_cast<uint32>(first + j) < static_cast<uint32>(chosen);  // not a neighbour's
      seen.likelier += logits[j] >= above_chosen || (logits[j] == of_chosen && is_before);
    }
  } else {
    const float bar = first < chosen ? of_chosen : above_chosen;
#pragma unroll
    for (int j = 0; j < PIECE; j++) seen.likelier += logits[j] >= bar;
  }
}

// The logits that are no neighbours', as keys: `use(key)`.
template <typename Use>
__device__ __forceinline__ void for_each_token(const RowSlice& slice, int first, const float (&logits)[PIECE],
                                               Use use) {
#pragma unroll
  for (int j = 0; j < PIECE; j++) {
    if (static_cast<uint32>(first + j) >= static_cast<uint32>(slice.vocab_size)) continue;
    use(argmax_key(__fadd_rn(logits[j], 0.0f), first + j));  // of both zeros the positive one
  }
}

// Leaves the `count` largest keys, in order, as the only ones.
__device__ __forceinline__ void sort_keys(Shared& shared, int count) {
  const int num_keys = shared.num_keys;
  for (int i = threadIdx.x; i < num_keys; i += NUM_THREADS) {
    const uint64 key = shared.keys[i];
    int place = 0;
    for (int j = 0; j < num_keys; j++) place += shared.keys[j] > key;
    if (place < count) shared.kept[place] = key;
  }
  __syncthreads();
  const int left = min(num_keys, count);
  if (threadIdx.x < left) shared.keys[threadIdx.x] = shared.kept[threadIdx.x];
  if (threadIdx.x == 0) shared.num_keys = left;
  __syncthreads();
}

// A sum in parts of e^from, in parts of e^to.
__device__ __forceinline__ float scaled(float sum, float from, float to) {
  return from > NEGATIVE_INFINITY ? sum * exp2_fast((from - to) * LOG2_E) : 0.0f;
}

__device__ __forceinline__ uint32 count_over_warp(uint32 x) {
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL_WARP, x, step);
  return x;
}

// Which groups have the best tokens, and the bar. The lanes of each group share the comparisons with all others.
__device__ __forceinline__ void choose_groups(Shared& shared, int count) {
  const int group = threadIdx.x / GROUP_LANES, lane = threadIdx.x % GROUP_LANES;
  const uint64 own = shared.best[group];
  int place = 0;
#pragma unroll
  for (int i = lane; i < NUM_GROUPS; i += GROUP_LANES) place += shared.best[i] > own;
#pragma unroll
  for (int step = 1; step < GROUP_LANES; step *= 2) place += __shfl_xor_sync(FULL_WARP, place, step);
  if (lane == 0 && own > 0) {
    if (place < count) shared.winners[place] = group;
    if (place == count - 1) shared.bar = own;
  }
}

// Collects every key that reaches the bar; whenever there are many, all but the best are dropped.
__device__ __forceinline__ void collect_keys(Shared& shared, const RowSlice& whole, const Element* row, int count) {
  const int pieces_of_group = ceil_div(whole.most, WARP_SIZE) * GROUP_LANES;
  const int num_pieces = count * pieces_of_group;
  for (int first = 0; first < num_pieces; first += TURN_PIECES) {
    const int item = first + threadIdx.x;
    const int group = threadIdx.x < TURN_PIECES && item < num_pieces ? shared.winners[item / pieces_of_group] : -1;
    if (group >= 0) {
      const int turn = item % pieces_of_group;
      const RowSlice slice(row, Penalties{}, nullptr, whole.vocab_size, group / GROUPS_OF_WARP, NUM_WARPS);
      const int lane = group % GROUPS_OF_WARP * GROUP_LANES + turn % GROUP_LANES;
      const int piece = slice.begin + turn / GROUP_LANES * WARP_SIZE + lane;
      if (piece < slice.end) {
        float logits[PIECE];
        slice.convert(slice.fetch(piece), piece, logits);
        for_each_token(slice, slice.first_token(piece), logits, [&](uint64 key) {
          if (key >= shared.bar) shared.keys[atomicAdd(&shared.num_keys, 1)] = key;
        });
      }
    }
    __syncthreads();
    const bool is_full = shared.num_keys > MOST_LEFT;
    __syncthreads();
    if (is_full) sort_keys(shared, count);
  }
  sort_keys(shared, count);
}

// Grid: (num_rows), NUM_THREADS threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    top_logprobs(int* __restrict__ token_ids,   // [num_rows, width]: the chosen one, then the most likely ones
                 float* __restrict__ logprobs,  // [num_rows, width]: theirs
                 int* __restrict__ ranks,       // [num_rows]: of the chosen ones
                 const Element* __restrict__ logits,  // [num_rows, vocab_size], strided
                 const int* __restrict__ chosen,      // [num_rows]
                 const int* __restrict__ counts,  // [num_rows]: most likely ones wanted; below 0: nothing at all
                 int vocab_size, int64 row_stride, int width) {
  __shared__ Shared shared;
  const int row_index = blockIdx.x, warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const Element* row = logits + row_index * row_stride;
  const RowSlice slice(row, Penalties{}, nullptr, vocab_size, warp, NUM_WARPS);
  uint4 first_pieces[PIECES_AHEAD];
  slice.fetch_first(first_pieces);
  const int token = chosen[row_index];
  const int count = min(counts[row_index], min(width - 1, MAX_COUNT));
  if (count < 0) return;
  const float of_chosen = __fadd_rn(to_float(row[token]), 0.0f);
  const float above_chosen = next_above(of_chosen);
  if (threadIdx.x < MAX_COUNT) shared.winners[threadIdx.x] = -1;
  if (threadIdx.x == 0) shared.bar = 0, shared.num_keys = 0;

  Seen seen;
  slice.for_each_from(first_pieces, [&](int first, const float (&logits_of_piece)[PIECE]) {
    see(seen, first, logits_of_piece, vocab_size, token, of_chosen, above_chosen);
  });
  uint64 best = seen.best < 0 ? 0 : argmax_key(__fadd_rn(seen.most, 0.0f), seen.best);
#pragma unroll
  for (int step = 1; step < GROUP_LANES; step *= 2) best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
  if (lane % GROUP_LANES == 0) shared.best[threadIdx.x / GROUP_LANES] = best;
  const float most = warp_max(seen.most);
  const uint32 likelier = count_over_warp(seen.likelier);
  const float sum = warp_sum(scaled(seen.sum, seen.most, most));
  if (lane == 0) shared.most[warp] = most, shared.sums[warp] = sum, shared.likelier[warp] = likelier;
  __syncthreads();

  if (count > 0) {
    choose_groups(shared, count);
    __syncthreads();
    collect_keys(shared, slice, row, count);
  }
  if (threadIdx.x >= MAX_COUNT) return;
  const float most_of_row = warp_max(shared.most[lane]);
  const float log_of_sum = logf(warp_sum(scaled(shared.sums[lane], shared.most[lane], most_of_row)));
  const uint32 rank = 1 + count_over_warp(shared.likelier[lane]);
  const int64 first = static_cast<int64>(row_index) * width;
  if (threadIdx.x == 0) {
    token_ids[first] = token;
    logprobs[first] = of_chosen - most_of_row - log_of_sum;
    ranks[row_index] = rank;
  }
  if (threadIdx.x < shared.num_keys) {
    const uint64 key = shared.keys[threadIdx.x];
    token_ids[first + 1 + threadIdx.x] = argmax_row(key);
    logprobs[first + 1 + threadIdx.x] = argmax_value(key) - most_of_row - log_of_sum;
  }
}
