// How likely the chosen token of each row was, its rank, and the most likely tokens beside it.
//
//   logprob[token] = logit - max - log(sum over the row of exp(logit - max))
//   rank           = 1 + tokens that are likelier, or as likely with a lower id
//
// A thread block reads its part of a row once: sum and rank come out of that, and the likeliest token of every
// eight threads. The best `count` tokens of the part are with the `count` best of these groups of threads, and none
// of them is below the last one's: so only what those groups have read is looked at again, and only what reaches
// that bar is sorted. With CLUSTER above 1 as many thread blocks share a row, and the first one puts together what
// they have found. Keys of tokens are all different (argmax.cuh), so whatever the order of threads, the tokens are
// the same.

#include "common/argmax.cuh"
#include "common/cluster.cuh"
#include "common/row_slice.cuh"

constexpr int NUM_THREADS = 1024;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int GROUP_LANES = 8;
constexpr int NUM_GROUPS = NUM_THREADS / GROUP_LANES;
constexpr int GROUPS_OF_WARP = WARP_SIZE / GROUP_LANES;
constexpr int MAX_COUNT = 64;                          // as pagedchat/ops/sampling/kernels.py says
constexpr int TURN_PIECES = 256;                       // looked at again at a time
constexpr int MOST_SORTED = 2 * TURN_PIECES * 16 / 2;  // keys of two turns, where each element has two bytes
static_assert(NUM_GROUPS >= MAX_COUNT, "every token may be with another group");

struct Shared {
  uint64 best[NUM_GROUPS];
  float most[NUM_WARPS], sums[NUM_WARPS];
  uint32 likelier[NUM_WARPS];
  int winners[MAX_COUNT];  // the groups with the best tokens; -1 where there are no more
  uint64 bar;              // no token below it is wanted
  uint64 keys[MOST_SORTED], kept[MAX_COUNT];
  uint32 num_keys;
  uint32 most_of_part, sum_of_part;  // bits of floats, the sum in parts of e^most
  uint32 likelier_of_part;
};

// What a thread finds in its part of a row.
struct Found {
  float most = NEGATIVE_INFINITY, sum = 0.0f;
  int token;  // the first of the largest logits; below 0: there are none
  uint32 likelier = 0;

  __device__ __forceinline__ uint64 key() const { return token < 0 ? 0 : argmax_key(__fadd_rn(most, 0.0f), token); }
};

__device__ __forceinline__ Found read_slice(const RowSlice& slice, float of_chosen, int chosen) {
  const int first_piece = slice.begin + threadIdx.x % WARP_SIZE;
  Found found;
  found.token = first_piece < slice.end ? max(slice.first_token(first_piece), 0) : -1;
  slice.for_each([&](int first, const float (&logits)[PIECE]) {
    const float before = found.most;
#pragma unroll
    for (int j = 0; j < PIECE; j++) {
      const float logit = logits[j];
      if (logit > found.most) found.most = logit, found.token = first + j;
      // Nothing outside of the row counts: in front of it places are huge as unsigned numbers.
      const bool is_before = static_cast<uint32>(first + j) < static_cast<uint32>(chosen);
      found.likelier += logit > of_chosen || (logit == of_chosen && is_before);
    }
    if (found.most == NEGATIVE_INFINITY) return;
    if (found.most > before) found.sum *= exp2_fast((before - found.most) * LOG2_E);
#pragma unroll
    for (int j = 0; j < PIECE; j++) found.sum += exp2_fast((logits[j] - found.most) * LOG2_E);
  });
  return found;
}

// Leaves the `count` largest keys, in order, as the only ones.
__device__ __forceinline__ void sort_keys(Shared& shared, int count) {
  const int num_keys = static_cast<int>(shared.num_keys);
  for (int i = threadIdx.x; i < num_keys; i += NUM_THREADS) {
    const uint64 key = shared.keys[i];
    int place = 0;
    for (int j = 0; j < num_keys; j++) place += shared.keys[j] > key;
    if (place < count) shared.kept[place] = key;
  }
  __syncthreads();
  const uint32 left = min(num_keys, count);
  if (threadIdx.x < left) shared.keys[threadIdx.x] = shared.kept[threadIdx.x];
  if (threadIdx.x == 0) shared.num_keys = left;
  __syncthreads();
}

// Which groups have the best tokens, and the bar.
__device__ __forceinline__ void choose_groups(Shared& shared, int count) {
  if (threadIdx.x < MAX_COUNT) shared.winners[threadIdx.x] = -1;
  if (threadIdx.x == 0) shared.bar = 0, shared.num_keys = 0;
  __syncthreads();
  const uint64 own = threadIdx.x < NUM_GROUPS ? shared.best[threadIdx.x] : 0;
  if (own > 0) {
    int place = 0;
    for (int i = 0; i < NUM_GROUPS; i++) place += shared.best[i] > own;
    if (place < count) shared.winners[place] = threadIdx.x;
    if (place == count - 1) shared.bar = own;
  }
  __syncthreads();
}

// Collects every key that reaches the bar; whenever there are many, all but the best are dropped.
__device__ __forceinline__ void collect_keys(Shared& shared, const RowSlice& own, int count) {
  const int pieces_of_group = ceil_div(own.most, WARP_SIZE) * GROUP_LANES;
  const int num_pieces = count * pieces_of_group;
  for (int start = 0; start < num_pieces; start += TURN_PIECES) {
    const int item = start + threadIdx.x;
    const int group = threadIdx.x < TURN_PIECES && item < num_pieces ? shared.winners[item / pieces_of_group] : -1;
    if (group >= 0) {
      const int turn = item % pieces_of_group, warp = blockIdx.x * NUM_WARPS + group / GROUPS_OF_WARP;
      const RowSlice slice(own.row, Penalties{}, own.vocab_size, warp, CLUSTER * NUM_WARPS);
      const int lane = group % GROUPS_OF_WARP * GROUP_LANES + turn % GROUP_LANES;
      const int piece = slice.begin + turn / GROUP_LANES * WARP_SIZE + lane;
      if (piece < slice.end) {
        float logits[PIECE];
        slice.convert(slice.fetch(piece), piece, logits);
        const int first = slice.first_token(piece);
#pragma unroll
        for (int j = 0; j < PIECE; j++) {
          if (static_cast<uint32>(first + j) >= static_cast<uint32>(own.vocab_size)) continue;
          const uint64 key = argmax_key(__fadd_rn(logits[j], 0.0f), first + j);  // of both zeros the positive one
          if (key >= shared.bar) shared.keys[atomicAdd(&shared.num_keys, 1)] = key;
        }
      }
    }
    __syncthreads();
    const bool is_full = shared.num_keys > MOST_SORTED / 2;
    __syncthreads();
    if (is_full) sort_keys(shared, count);
  }
  sort_keys(shared, count);
}

// What the threads of a thread block have found, put together in shared memory.
__device__ __forceinline__ void put_together(Shared& shared, const Found& found) {
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  uint64 best = found.key();
  uint32 likelier = found.likelier;
#pragma unroll
  for (int step = 1; step < GROUP_LANES; step *= 2) best = max(best, __shfl_xor_sync(FULL_WARP, best, step));
  if (lane % GROUP_LANES == 0) shared.best[threadIdx.x / GROUP_LANES] = best;
  const float most = warp_max(found.most);
  const float in_parts = found.most > NEGATIVE_INFINITY ? exp2_fast((found.most - most) * LOG2_E) : 0.0f;
  const float sum = warp_sum(found.sum * in_parts);
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) likelier += __shfl_xor_sync(FULL_WARP, likelier, step);
  if (lane == 0) shared.most[warp] = most, shared.sums[warp] = sum, shared.likelier[warp] = likelier;
  __syncthreads();
  if (warp > 0) return;
  const float of_warp = shared.most[lane], most_of_part = warp_max(of_warp);
  const float scale = of_warp > NEGATIVE_INFINITY ? exp2_fast((of_warp - most_of_part) * LOG2_E) : 0.0f;
  const float sum_of_part = warp_sum(shared.sums[lane] * scale);
  uint32 likelier_of_part = shared.likelier[lane];
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) {
    likelier_of_part += __shfl_xor_sync(FULL_WARP, likelier_of_part, step);
  }
  if (lane == 0) {
    shared.most_of_part = __float_as_uint(most_of_part);
    shared.sum_of_part = __float_as_uint(sum_of_part);
    shared.likelier_of_part = likelier_of_part;
  }
}

// The keys of all thread blocks of the cluster, sorted in the first one.
__device__ __forceinline__ void gather_keys(Shared& shared, int count) {
  for (int rank = 1; rank < CLUSTER; rank++) {
    const uint32 theirs = load_from(&shared.num_keys, rank), own = shared.num_keys;
    __syncthreads();
    if (threadIdx.x < theirs) shared.keys[own + threadIdx.x] = load_from(&shared.keys[threadIdx.x], rank);
    if (threadIdx.x == 0) shared.num_keys = own + theirs;
    __syncthreads();
  }
  sort_keys(shared, count);
}

// Grid: (CLUSTER, num_rows), NUM_THREADS threads
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS)
    top_logprobs(int* __restrict__ token_ids,   // [num_rows, width]: the chosen one, then the most likely ones
                 float* __restrict__ logprobs,  // [num_rows, width]: theirs
                 int* __restrict__ ranks,       // [num_rows]: of the chosen ones
                 const Element* __restrict__ logits,  // [num_rows, vocab_size], strided
                 const int* __restrict__ chosen,      // [num_rows]
                 const int* __restrict__ counts,  // [num_rows]: most likely ones wanted; below 0: nothing at all
                 int vocab_size, int64 row_stride, int width) {
  __shared__ Shared shared;
  const int row_index = blockIdx.y, cluster_warp = blockIdx.x * NUM_WARPS + threadIdx.x / WARP_SIZE;
  const int token = chosen[row_index], count = min(counts[row_index], min(width - 1, MAX_COUNT));
  if (count < 0) return;
  const Element* row = logits + row_index * row_stride;
  const RowSlice slice(row, Penalties{}, vocab_size, cluster_warp, CLUSTER * NUM_WARPS);
  const float of_chosen = to_float(row[token]);
  put_together(shared, read_slice(slice, of_chosen, token));
  if (count > 0) {
    choose_groups(shared, count);
    collect_keys(shared, slice, count);
  }
  sync_cluster();
  if (blockIdx.x == 0) {
    float most = NEGATIVE_INFINITY, sum = 0.0f;
    uint32 rank_of_chosen = 1;
#pragma unroll
    for (int rank = 0; rank < CLUSTER; rank++) {
      most = fmaxf(most, __uint_as_float(load_from(&shared.most_of_part, rank)));
    }
#pragma unroll
    for (int rank = 0; rank < CLUSTER; rank++) {
      const float of_part = __uint_as_float(load_from(&shared.most_of_part, rank));
      const float scale = of_part > NEGATIVE_INFINITY ? exp2_fast((of_part - most) * LOG2_E) : 0.0f;
      sum += __uint_as_float(load_from(&shared.sum_of_part, rank)) * scale;
      rank_of_chosen += load_from(&shared.likelier_of_part, rank);
    }
    const float log_of_sum = logf(sum);
    const int64 first = static_cast<int64>(row_index) * width;
    if (threadIdx.x == 0) {
      token_ids[first] = token;
      logprobs[first] = of_chosen - most - log_of_sum;
      ranks[row_index] = rank_of_chosen;
    }
    if (count > 0 && CLUSTER > 1) gather_keys(shared, count);
    if (count > 0 && threadIdx.x < shared.num_keys) {
      const uint64 key = shared.keys[threadIdx.x];
      token_ids[first + 1 + threadIdx.x] = argmax_row(key);
      logprobs[first + 1 + threadIdx.x] = argmax_value(key) - most - log_of_sum;
    }
  }
  sync_cluster();  // nobody reads this thread block's shared memory any more
}
