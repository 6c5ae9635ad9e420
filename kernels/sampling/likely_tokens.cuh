// Of a row of logits how likely the chosen token is, its rank, and the most likely tokens: the work of one row.
//
// CLUSTER thread blocks share a row, 32 warps in all; each reads its part once. Sum and rank come out of that, and
// the likeliest logit of every few threads. At least `count` tokens of a part are as likely as the last one of the
// `count` best of these groups of threads. So only what those groups have read is looked at again, and only what
// reaches that bar is sorted. Each thread block sends its best ones to the first one of the cluster, and there each
// key counts how many of all others are above it. NOTE: they are counted by an mbarrier as they come. A barrier of
// the cluster behind plain stores would be one behind a fence for the whole GPU.
//
// Keys of tokens are all different (argmax.cuh), and a warp has the same pieces and a sum of its own, however many
// thread blocks there are: the results are the same to the bit. NOTE: the time is that of one row's chain of
// loads, instructions and barriers. So the first logits are asked for before it is known what for, what is done for
// every logit is kept short, and what that leaves wrong is put right once.

#pragma once

#include "common/argmax.cuh"
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "sampling/row_slice.cuh"

constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int ROW_WARPS = CLUSTER * NUM_WARPS;
constexpr int GROUP_LANES = CLUSTER > 1 ? 2 : 8;
constexpr int NUM_GROUPS = NUM_THREADS / GROUP_LANES;
constexpr int GROUPS_OF_WARP = WARP_SIZE / GROUP_LANES;
constexpr int AHEAD = CLUSTER > 1 ? 4 : PIECES_AHEAD;               // few warps hide little
constexpr int MAX_COUNT = 64;                                       // as pagedchat/ops/sampling/kernels.py says
constexpr int TURN_PIECES = NUM_THREADS < 512 ? NUM_THREADS : 512;  // looked at again at a time
constexpr int MOST_LEFT = 1024;                                     // keys that a turn may find there
constexpr int MOST_SORTED = MOST_LEFT + TURN_PIECES * PIECE;
static_assert(NUM_GROUPS >= MAX_COUNT, "every token may be with another group");
static_assert(MOST_LEFT >= MAX_COUNT, "the best ones stay from turn to turn");
static_assert(NUM_THREADS >= MAX_COUNT, "a thread for each token that is wanted");
static_assert(ROW_WARPS == WARP_SIZE, "a lane for what each warp has found");

// Of a thread block.
struct LikelyShared {
  float best[NUM_GROUPS];
  int winners[NUM_GROUPS];  // the groups with the best logits
  uint32 unlike_bar;        // no token whose logit is below the bar is wanted: its `ordered_bits`, inverted
  int num_winners, num_keys;
  uint64 keys[MOST_SORTED], kept[MAX_COUNT];
};

// What all of them have found, in the first one.
struct RowShared {
  float4 seen[ROW_WARPS];           // by each warp: `most`, `sum` and the bits of `likelier`, see Seen
  uint64 keys[MAX_COUNT][CLUSTER];  // the best ones of each thread block, in order; 0: it has no more
  uint64 complete;                  // mbarrier, one phase: all of this has come
};

#if CLUSTER > 1
// First thread block, one thread, before the others are told that it has begun. NOTE: for as many keys as there is
// room for, whatever is wanted: nobody asks for logits before what a row wants is there, if it is needed here.
__device__ __forceinline__ void expect_all(RowShared& of_row, int room) {
  const uint32 barrier = static_cast<uint32>(__cvta_generic_to_shared(&of_row.complete));
  init_barrier(barrier, 1);
  publish_barriers();
  expect_bytes(barrier, sizeof(of_row.seen) + room * sizeof(of_row.keys[0]));
}

// First thread block, all of its threads.
__device__ __forceinline__ void wait_for_all(const RowShared& of_row) {
  wait(static_cast<uint32>(__cvta_generic_to_shared(&of_row.complete)), 0);
}
#else
__device__ __forceinline__ void expect_all(RowShared&, int) {}
__device__ __forceinline__ void wait_for_all(const RowShared&) { __syncthreads(); }
#endif

// Where it goes. Of chosen tokens only where they are told of.
struct LikelyOutputs {
  int* token_ids;   // [num_rows, width]: the chosen one, then the most likely ones
  float* logprobs;  // [num_rows, width]: theirs
  int* ranks;       // [num_rows]: of the chosen ones
  int width;
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

// One piece more. What reaches `bar` counts as likelier than the chosen token, if that is to be told.
template <bool RANKS>
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
    if (RANKS) seen.likelier += logits[j] >= bar;
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

// `use(place, key)` for every key that is among the `count` largest.
template <typename Use>
__device__ __forceinline__ void place_keys(const LikelyShared& shared, int count, Use use) {
  const int num_keys = shared.num_keys;
#pragma unroll 1
  for (int i = threadIdx.x; i < num_keys; i += NUM_THREADS) {
    const uint64 key = shared.keys[i];
    int place = 0;
#pragma unroll 4
    for (int j = 0; j < num_keys; j++) place += shared.keys[j] > key;
    if (place < count) use(place, key);
  }
}

// Leaves the `count` largest keys, in order, as the only ones.
__device__ __forceinline__ void drop_keys(LikelyShared& shared, int count) {
  const int left = min(shared.num_keys, count);
  place_keys(shared, count, [&](int place, uint64 key) { shared.kept[place] = key; });
  __syncthreads();
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
__device__ __forceinline__ void choose_groups(LikelyShared& shared, int count) {
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

// Collects every key of this thread block that reaches the bar; whenever there are many, all but the best ones are
// dropped.
__device__ __forceinline__ void collect_keys(LikelyShared& shared, const RowSlice& whole, int rank, int count) {
  const int pieces_of_lane = ceil_div(whole.most, WARP_SIZE);
  const int turns = 32 - __clz(pieces_of_lane - 1);  // rounded up to bits: no division before the second look
  const int num_pieces = (shared.num_winners * GROUP_LANES) << turns;
  const float bar = value_of(~shared.unlike_bar);
#pragma unroll 1
  for (int first = 0;; first += TURN_PIECES) {
    const int item = first + threadIdx.x;
    if (threadIdx.x < TURN_PIECES && item < num_pieces) {
      const int turn = item / GROUP_LANES & ((1 << turns) - 1), group = shared.winners[item / GROUP_LANES >> turns];
      const int row_warp = rank * NUM_WARPS + group / GROUPS_OF_WARP;
      const RowSlice slice(whole.row, Penalties{}, nullptr, whole.vocab_size, row_warp, ROW_WARPS);
      const int lane = group % GROUPS_OF_WARP * GROUP_LANES + item % GROUP_LANES;
      const int piece = slice.begin + turn * WARP_SIZE + lane;
      if (piece < slice.end) {
        float logits[PIECE];
        slice.convert(slice.fetch(piece), piece, logits);
        uint32 reached = 0;
#pragma unroll
        for (int j = 0; j < PIECE; j++) reached |= (logits[j] >= bar) << j;
        for (; reached != 0; reached &= reached - 1) {
          const int token = slice.first_token(piece) + __ffs(reached) - 1;
          if (static_cast<uint32>(token) >= static_cast<uint32>(slice.vocab_size)) continue;
          // Of both zeros the positive one.
          const float logit = __fadd_rn(to_float(slice.row[token]), 0.0f);
          shared.keys[atomicAdd(&shared.num_keys, 1)] = argmax_key(logit, token);
        }
      }
    }
    __syncthreads();
    if (first + TURN_PIECES >= num_pieces) return;
    const bool are_many = shared.num_keys > MOST_LEFT;
    __syncthreads();  // everybody has looked how many there are
    if (are_many) drop_keys(shared, count);
  }
}

// The best keys of this thread block, and nothing where it has no more, to the first one.
__device__ __forceinline__ void send_keys(const LikelyShared& shared, RowShared& of_row, int rank, int count,
                                          int room) {
  const auto send = [&](int place, uint64 key) { send_to(&of_row.keys[place][rank], &of_row.complete, 0, key); };
  place_keys(shared, count, send);
  if (threadIdx.x < room && threadIdx.x >= min(shared.num_keys, count)) send(threadIdx.x, 0);
}

// How many keys of a row are above this one, or `count` or more: those of a thread block that are stand first.
__device__ __forceinline__ int keys_above(const RowShared& of_row, uint64 key, int count) {
  int above = 0;
#pragma unroll 1
  for (int i = 0; i < count && above < count; i++) {
    int here = 0;
#pragma unroll
    for (int rank = 0; rank < CLUSTER; rank++) here += of_row.keys[i][rank] > key;
    if (here == 0) break;
    above += here;
  }
  return above;
}

// What is known of the row, by the warps that have something to write. First thread block.
template <bool RANKS>
__device__ __forceinline__ void write_row(const RowShared& of_row, const LikelyOutputs& to, int row, int token,
                                          float of_chosen, int count) {
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, num_keys = count * CLUSTER;
  if (warp > 0 && warp * WARP_SIZE >= num_keys) return;
  const float4 seen = of_row.seen[lane];
  const float most_of_row = warp_max(seen.x), sum_of_row = warp_sum(scaled(seen.y, seen.x, most_of_row));
  const float left_out = most_of_row == NEGATIVE_INFINITY ? 0.0f : fmaf(most_of_row, LOG2_E, -unit_of(most_of_row));
  const float log_of_sum = logf(sum_of_row) - left_out * LN_2;
  const int64 first = static_cast<int64>(row) * to.width;
  if (RANKS) {
    const uint32 rank = 1 + count_over_warp(__float_as_uint(seen.z));
    if (threadIdx.x == 0) {
      to.token_ids[first] = token;
      to.logprobs[first] = of_chosen - most_of_row - log_of_sum;
      to.ranks[row] = rank;
    }
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < num_keys; i += NUM_THREADS) {
    const uint64 key = of_row.keys[i / CLUSTER][i % CLUSTER];
    if (key == 0) continue;
    const int place = CLUSTER == 1 ? i : keys_above(of_row, key, count);
    if (place >= count) continue;
    to.token_ids[first + RANKS + place] = argmax_row(key);
    to.logprobs[first + RANKS + place] = argmax_value(key) - most_of_row - log_of_sum;
  }
}

// All of it, by the CLUSTER thread blocks of a row.
//
// RANKS: whether of the chosen tokens anything is told. logits: [num_rows, vocab_size], strided; chosen:
// [num_rows]; counts: [num_rows], most likely ones wanted; below 0: nothing at all.
template <bool RANKS>
__device__ __forceinline__ void find_likely_tokens(LikelyShared& shared, RowShared& of_row, const LikelyOutputs& to,
                                                   const Element* logits, const int* chosen, const int* counts,
                                                   int row_index, int rank, int vocab_size, int64 row_stride) {
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE, row_warp = rank * NUM_WARPS + warp;
  const Element* row = logits + row_index * row_stride;
  const RowSlice slice(row, Penalties{}, nullptr, vocab_size, row_warp, ROW_WARPS);
  const int token = RANKS ? chosen[row_index] : 0, room = min(to.width - RANKS, MAX_COUNT);
  const int count = min(counts[row_index], room);
  uint4 first_pieces[AHEAD];
  slice.fetch_first(first_pieces);
  if (CLUSTER == 1 && count < 0) return;
  if (threadIdx.x == 0) {
    shared.unlike_bar = 0, shared.num_winners = 0, shared.num_keys = 0;
    if (rank == 0) expect_all(of_row, room);
  }
  announce_to_cluster();
  const float of_chosen = RANKS ? __fadd_rn(to_float(row[token]), 0.0f) : 0.0f;
  const float above_chosen = next_above(of_chosen);

  Seen seen;
  slice.for_each_from(first_pieces, [&](int first, const float (&logits_of_piece)[PIECE]) {
    see<RANKS>(seen, logits_of_piece, first <= token ? of_chosen : above_chosen);
  });
  if (RANKS && row_warp == 0) seen.likelier -= counted_wrongly(slice, token, of_chosen);
  const float best = warp_max<GROUP_LANES / 2>(seen.most), most = warp_max<WARP_SIZE / 2, GROUP_LANES>(best);
  if (lane % GROUP_LANES == 0) shared.best[threadIdx.x / GROUP_LANES] = best;
  const uint32 likelier = RANKS ? count_over_warp(seen.likelier) : 0;
  const float sum = warp_sum(scaled(seen.sum, seen.most, most));
  __syncthreads();
  if (count > 0) {
    choose_groups(shared, count);
    __syncthreads();
    collect_keys(shared, slice, rank, count);
  }
  wait_for_cluster();  // the first thread block has its mbarrier. NOTE: what was read is no longer in L1 then.
  // NOTE: no sooner where thread blocks have a multiprocessor each: logits would be asked for behind it.
  if (CLUSTER > 1 && count < 0) return;
  if (lane == 0) {
    const float4 of_warp = make_float4(most, sum, __uint_as_float(likelier), 0.0f);
    send_to(&of_row.seen[row_warp], &of_row.complete, 0, of_warp);
  }
  send_keys(shared, of_row, rank, count, room);
  if (rank > 0) return;
  wait_for_all(of_row);
  write_row<RANKS>(of_row, to, row_index, token, of_chosen, count);
}
