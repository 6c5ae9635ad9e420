// How likely the chosen token of each row was, its rank, and the most likely tokens beside it.
//
//   logprob[token] = logit - max - log(sum over the row of exp(logit - max))
//   rank           = 1 + tokens that are likelier, or as likely with a lower id
//
// One thread block a row, which it reads once: sum and rank come out of that, and the likeliest token of every four
// threads. The best `count` tokens of a row are with the `count` best of these groups of threads, and none of them
// is below the last one's: so only what those groups have read is looked at again, and only what reaches that bar
// is sorted. Keys of tokens are all different (argmax.cuh), so whatever the order of threads, the result is the
// same.

#include "common/argmax.cuh"
#include "common/row_slice.cuh"

constexpr int NUM_THREADS = 1024;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int GROUP_LANES = 4;
constexpr int NUM_GROUPS = NUM_THREADS / GROUP_LANES;
constexpr int GROUPS_OF_WARP = WARP_SIZE / GROUP_LANES;
constexpr int MAX_COUNT = 64;                          // as pagedchat/ops/sampling/kernels.py says
constexpr int TURN_PIECES = 256;                       // looked at again at a time
constexpr int MOST_SORTED = 2 * TURN_PIECES * 16 / 2;  // keys of two turns, where each element has two bytes
static_assert(NUM_GROUPS >= MAX_COUNT, "every token may be with another group");

struct Shared {
  uint64 best[NUM_GROUPS];
  int places[NUM_GROUPS];  // in the order of those
  float sums[NUM_WARPS];
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

// Which groups have the best tokens, and the bar. Each is compared with all others, by several threads.
__device__ __forceinline__ void choose_groups(Shared& shared, int count) {
  constexpr int THREADS_EACH = NUM_THREADS / NUM_GROUPS, OTHERS_EACH = NUM_GROUPS / THREADS_EACH;
  const int group = threadIdx.x % NUM_GROUPS, part = threadIdx.x / NUM_GROUPS;
  if (threadIdx.x < MAX_COUNT) shared.winners[threadIdx.x] = -1;
  if (threadIdx.x < NUM_GROUPS) shared.places[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared.bar = 0, shared.num_keys = 0;
  __syncthreads();
  const uint64 own = shared.best[group];
  int better = 0;
#pragma unroll 8
  for (int i = 0; i < OTHERS_EACH; i++) better += shared.best[part * OTHERS_EACH + i] > own;
  if (own > 0 && better > 0) atomicAdd(&shared.places[group], better);
  __syncthreads();
  if (part == 0 && own > 0) {
    const int place = shared.places[group];
    if (place < count) shared.winners[place] = group;
    if (place == count - 1) shared.bar = own;
  }
  __syncthreads();
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
    const bool is_full = shared.num_keys > MOST_SORTED / 2;
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
  const int count = min(counts[row_index], min(width - 1, MAX_COUNT));
  if (count < 0) return;
  const Element* row = logits + row_index * row_stride;
  const RowSlice slice(row, Penalties{}, nullptr, vocab_size, warp, NUM_WARPS);
  const int token = chosen[row_index];
  const float of_chosen = __fadd_rn(to_float(row[token]), 0.0f);
  const float above_chosen = next_above(of_chosen);

  Seen seen;
  slice.for_each([&](int first, const float (&logits_of_piece)[PIECE]) {
    see(seen, first, logits_of_piece, vocab_size, token, of_chosen, above_chosen);
  });
  uint64 best = seen.best < 0 ? 0 : argmax_key(__fadd_rn(seen.most, 0.0f), seen.best);
  uint32 likelier = seen.likelier;
#pragma unroll
  for (int step = 1; step < GROUP_LANES; step *= 2) best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
  if (lane % GROUP_LANES == 0) shared.best[threadIdx.x / GROUP_LANES] = best;
  __syncthreads();

  float most_of_row = NEGATIVE_INFINITY;
  for (int i = lane; i < NUM_GROUPS; i += WARP_SIZE) {
    if (shared.best[i] > 0) most_of_row = fmaxf(most_of_row, argmax_value(shared.best[i]));
  }
  most_of_row = warp_max(most_of_row);
  const bool has_mass = seen.most > NEGATIVE_INFINITY;
  const float sum = warp_sum(has_mass ? seen.sum * exp2_fast((seen.most - most_of_row) * LOG2_E) : 0.0f);
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) likelier += __shfl_xor_sync(FULL_WARP, likelier, step);
  if (lane == 0) shared.sums[warp] = sum, shared.likelier[warp] = likelier;
  if (count > 0) choose_groups(shared, count);
  __syncthreads();
  const float log_of_sum = logf(warp_sum(shared.sums[lane]));
  if (threadIdx.x == 0) {
    uint32 rank = 1;
    for (int i = 0; i < NUM_WARPS; i++) rank += shared.likelier[i];
    token_ids[static_cast<int64>(row_index) * width] = token;
    logprobs[static_cast<int64>(row_index) * width] = of_chosen - most_of_row - log_of_sum;
    ranks[row_index] = rank;
  }
  if (count == 0) return;
  collect_keys(shared, slice, row, count);
  if (threadIdx.x < shared.num_keys) {
    const int64 place = static_cast<int64>(row_index) * width + 1 + threadIdx.x;
    const uint64 key = shared.keys[threadIdx.x];
    token_ids[place] = argmax_row(key);
    logprobs[place] = argmax_value(key) - most_of_row - log_of_sum;
  }
}
