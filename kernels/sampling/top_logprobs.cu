// How likely the chosen token of each row was, its rank, and the most likely tokens beside it.
//
//   logprob[token] = logit - max - log(sum over the row of exp(logit - max))
//   rank           = 1 + tokens that are likelier, or as likely with a lower id
//
// One thread block a row, which it reads once: sum and rank come out of that, and the likeliest logit of every
// eight threads. At least `count` tokens of a row are as likely as the last one of the `count` best of these groups
// of threads. So only what those groups have read is looked at again, and only what reaches that bar is sorted.
// Keys of tokens are all different (argmax.cuh), so whatever the order of threads, the result is the same. NOTE:
// however many rows there are, the time is that of one row's chain of loads, instructions and barriers. So the
// first logits are asked for before it is known what for, what is done for every logit is kept short, and what that
// leaves wrong is put right once.

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
  float best[NUM_GROUPS];
  float most[NUM_WARPS];  // the largest logit of each warp,
  float sums[NUM_WARPS];  // and its sum in parts of 2^(unit_of(most))
  uint32 likelier[NUM_WARPS];
  int winners[NUM_GROUPS];  // the groups with the best logits
  uint32 unlike_bar;        // no token whose logit is below the bar is wanted: its `ordered_bits`, inverted
  int num_winners, num_keys;
  uint64 keys[MOST_SORTED], kept[MAX_COUNT];
};

// What a thread has seen of a row.
struct Seen {
  float most = NEGATIVE_INFINITY;  // the largest logit
  float sum = 0.0f;                // in parts of 2^(unit_of(most))
  uint32 likelier = 0;             // tokens before the chosen one, in the order of likelihood
};

__device__ __forceinline__ float value_of(uint32 ordered) {
  return argmax_value(static_cast<uint64>(ordered) << 32);
}

// Where a logit counts that is above another one.
__device__ __forceinline__ float next_above(float value) { return value_of(ordered_bits(value) + 1); }

// In what sums are counted where the largest logit is this one: it is rounded, and what that leaves out is added to
// their logarithm in the end. NOTE: rounded everywhere, and never part of a fused operation.
__device__ __forceinline__ float unit_of(float most) {
  return most == NEGATIVE_INFINITY ? 0.0f : __fmul_rn(most, LOG2_E);
}

// A sum by the unit of one logit, by that of another one, which is not below it.
__device__ __forceinline__ float scaled(float sum, float from, float to) {
  return from == NEGATIVE_INFINITY ? 0.0f : sum * exp2_fast(unit_of(from) - unit_of(to));
}

// One piece more. What reaches `bar` counts as likelier than the chosen token.
__device__ __forceinline__ void see(Seen& seen, const float (&logits)[PIECE], float bar) {
  float most_here = logits[0];
#pragma unroll
  for (int j = 1; j < PIECE; j++) most_here = fmaxf(most_here, logits[j]);
  if (most_here > seen.most) {
    seen.sum = scaled(seen.sum, seen.most, most_here);
    seen.most = most_here;
  }
  const float unit = unit_of(seen.most);
#pragma unroll
  for (int j = 0; j < PIECE; j++) {
    seen.sum += exp2_fast(fmaf(logits[j], LOG2_E, -unit));
    seen.likelier += logits[j] >= bar;
  }
}

// What was counted in the piece that the chosen token is in, and is not likelier: the token itself, and tokens
// behind it that are as likely; besides, where its logit is minus infinity, what is put aside before the row. One
// warp.
__device__ __forceinline__ uint32 counted_wrongly(const RowSlice& slice, int chosen, float of_chosen) {
  const int lane = threadIdx.x % WARP_SIZE;
  const int token = slice.first_token((chosen + slice.skipped) / PIECE) + lane;
  if (lane >= PIECE || token < chosen) return lane == PIECE && of_chosen == NEGATIVE_INFINITY ? slice.skipped : 0;
  return token < slice.vocab_size ? to_float(slice.row[token]) == of_chosen : of_chosen == NEGATIVE_INFINITY;
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

__device__ __forceinline__ uint32 count_over_warp(uint32 x) {
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL_WARP, x, step);
  return x;
}

// Which groups have the best logits, and the bar. The lanes of each group share the comparisons with all others.
__device__ __forceinline__ void choose_groups(Shared& shared, int count) {
  const int group = threadIdx.x / GROUP_LANES, lane = threadIdx.x % GROUP_LANES;
  const float own = shared.best[group];
  int place = 0;
#pragma unroll 8
  for (int i = lane; i < NUM_GROUPS; i += GROUP_LANES) place += shared.best[i] > own;
#pragma unroll
  for (int step = 1; step < GROUP_LANES; step *= 2) place += __shfl_xor_sync(FULL_WARP, place, step);
  if (lane == 0 && place < count) {
    shared.winners[atomicAdd(&shared.num_winners, 1)] = group;
    atomicMax(&shared.unlike_bar, ~ordered_bits(__fadd_rn(own, 0.0f)));
  }
}

// Collects every key that reaches the bar, the best ones in order first; whenever there are many, all others are
// dropped.
__device__ __forceinline__ void collect_keys(Shared& shared, const RowSlice& whole, int count) {
  const int pieces_of_group = ceil_div(whole.most, WARP_SIZE) * GROUP_LANES;
  const int num_pieces = shared.num_winners * pieces_of_group;
  const float bar = value_of(~shared.unlike_bar);
#pragma unroll 1
  for (int first = 0;; first += TURN_PIECES) {
    const int item = first + threadIdx.x;
    if (threadIdx.x < TURN_PIECES && item < num_pieces) {
      const int group = shared.winners[item / pieces_of_group], turn = item % pieces_of_group;
      const RowSlice slice(whole.row, Penalties{}, nullptr, whole.vocab_size, group / GROUPS_OF_WARP, NUM_WARPS);
      const int lane = group % GROUPS_OF_WARP * GROUP_LANES + turn % GROUP_LANES;
      const int piece = slice.begin + turn / GROUP_LANES * WARP_SIZE + lane;
      if (piece < slice.end) {
        const int first_token = slice.first_token(piece);
        float logits[PIECE];
        slice.convert(slice.fetch(piece), piece, logits);
#pragma unroll
        for (int j = 0; j < PIECE; j++) {
          if (logits[j] < bar || static_cast<uint32>(first_token + j) >= static_cast<uint32>(slice.vocab_size))
            continue;
          // Of both zeros the positive one.
          shared.keys[atomicAdd(&shared.num_keys, 1)] = argmax_key(__fadd_rn(logits[j], 0.0f), first_token + j);
        }
      }
    }
    __syncthreads();
    const bool is_last = first + TURN_PIECES >= num_pieces;
    if (is_last || shared.num_keys > MOST_LEFT) {
      sort_keys(shared, count);
    } else {
      __syncthreads();  // everybody has looked how many there are
    }
    if (is_last) return;
  }
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
  if (threadIdx.x == 0) shared.unlike_bar = 0, shared.num_winners = 0, shared.num_keys = 0;

  Seen seen;
  slice.for_each_from(first_pieces, [&](int first, const float (&logits_of_piece)[PIECE]) {
    see(seen, logits_of_piece, first <= token ? of_chosen : above_chosen);
  });
  if (warp == 0) seen.likelier -= counted_wrongly(slice, token, of_chosen);
  const float best = warp_max<GROUP_LANES / 2>(seen.most), most = warp_max<WARP_SIZE / 2, GROUP_LANES>(best);
  if (lane % GROUP_LANES == 0) shared.best[threadIdx.x / GROUP_LANES] = best;
  const uint32 likelier = count_over_warp(seen.likelier);
  const float sum = warp_sum(scaled(seen.sum, seen.most, most));
  if (lane == 0) shared.most[warp] = most, shared.sums[warp] = sum, shared.likelier[warp] = likelier;
  __syncthreads();

  if (count > 0) {
    choose_groups(shared, count);
    __syncthreads();
    collect_keys(shared, slice, count);
  }
  if (threadIdx.x >= MAX_COUNT) return;
  const float most_of_row = warp_max(shared.most[lane]);
  const float sum_of_row = warp_sum(scaled(shared.sums[lane], shared.most[lane], most_of_row));
  const float left_out = most_of_row == NEGATIVE_INFINITY ? 0.0f : fmaf(most_of_row, LOG2_E, -unit_of(most_of_row));
  const float log_of_sum = logf(sum_of_row) - left_out * LN_2;
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
