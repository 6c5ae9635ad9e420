// Of a decode step whose vocabulary was screened and whose tokens are drawn from the `top_k` most likely ones: each
// sequence's tokens that may be among those, in the order of the vocabulary, with their exact logits, penalised.
// `sample_listed` draws from them. The state moves on, with tokens that are none yet.
//
// Each warp has units of its own, and multiplies the best row of the best of them first. What the `top_k`th of
// these rows has, so many tokens have at least: units that cannot reach it are left alone, and of the others the
// rows that cannot. With random weights some hundred of 150,000 rows are left where 20 are wanted. CLUSTER thread
// blocks share a token. Penalties make no token more likely (`SamplingParams` with others are left to whoever has
// all logits), so that what a row is at most holds with them too.

#include "common/argmax.cuh"
#include "common/cluster.cuh"
#include "sampling/next_state.cuh"
#include "sampling/row_params.cuh"
#include "screening/screened_rows.cuh"

constexpr int NUM_THREADS = 512, NUM_WARPS = NUM_THREADS / WARP_SIZE, ROW_WARPS = CLUSTER * NUM_WARPS;
constexpr int MOST_LISTED = NUM_THREADS;  // rows at a time
constexpr float KEY_STEP = 0x1p-17f;      // logits that are so close, in units of log2, may count as equal
constexpr int MOST_WANTED = 128;          // as pagedchat/ops/screening/plan.py says
constexpr int MOST_PICKS = ceil_div(2 * MOST_WANTED, ROW_WARPS);  // rows that a warp multiplies first

struct Shared {
  uint32 picked[MOST_PICKS][NUM_WARPS];  // logits of those, as ordered bits
  uint32 of_all[MOST_PICKS * ROW_WARPS];
  uint32 starts[NUM_WARPS];
  uint32 reached;
  int listed[MOST_LISTED];  // rows that are left
};

// Which rows of a unit are left, a bit for each, by two votes of a warp: whether the first and the second row of
// its lane's word are.
__device__ __forceinline__ uint64 in_order_of_rows(uint32 first, uint32 second) {
  uint64 rows = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    rows |= static_cast<uint64>(first >> 8 * i & 0xff | (second >> 8 * i & 0xff) << 8) << 16 * i;
  }
  return rows;
}

// Grid: (CLUSTER, num_tokens), 512 threads. Dynamic shared memory: the token's input, and 64 bits for every unit.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS, 2)
    list_screened(int* __restrict__ listed_ids,   // [num_tokens, room]: the tokens that are left
                  float* __restrict__ logits,     // [num_tokens, room]: theirs
                  int* __restrict__ num_listed,   // [num_tokens]
                  int* __restrict__ token_ids,    // [num_tokens]: zeros, until somebody draws
                  int* __restrict__ positions,    // [num_tokens]: moved on, where not below 0
                  int* __restrict__ seq_lens,     // [num_tokens]: moved on, likewise
                  int* __restrict__ history,      // [history_len, num_tokens]: the tokens of the last steps
                  int* __restrict__ step,         // [1]: moved on; says where in the history
                  uint32* __restrict__ arrivals,  // [1], zero before and after
                  const RowParams* __restrict__ sampling,  // [num_tokens]; top_k of what is drawn is above 0
                  short* counts,                           // [., vocab_size], see Penalties; or null
                  const uint32* estimates,                 // [num_units, columns, UNIT_WORDS]
                  const float* highest,                    // [columns, num_units]
                  const RowBounds* __restrict__ rows,      // [num_units, UNIT_ROWS]
                  const InputBounds* inputs,               // [columns]
                  const Element* input,                    // [num_tokens, width]
                  const Element* __restrict__ weight,      // [vocab_size, width]
                  int columns, int num_units, int width, int vocab_size, int history_len, int room) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Shared shared;
  const int rank = blockIdx.x, token = blockIdx.y;
  uint4* own_input = reinterpret_cast<uint4*>(memory);
  uint64* left = reinterpret_cast<uint64*>(memory + width * sizeof(Element));  // [num_units]: which rows are left
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE, row_warp = rank * NUM_WARPS + warp;
  const Screened screened = {estimates, highest, rows, weight, columns, num_units, width, vocab_size};
  let_next_kernel_start();
  wait_for_previous_kernel();
  const NextState next = {token_ids,  positions, seq_lens, history, step, arrivals, static_cast<int>(gridDim.y),
                          history_len};
  const NextState::Before before = next.look(token);
  const RowParams params = sampling[token];
  if (before.position < 0 || params.top_k < 0) {  // padding, or the business of somebody else
    if (rank == 0 && threadIdx.x == 0) {
      num_listed[token] = 0;
      next.take(token, 0, before);
    }
    return;
  }
  const Element* own = input + static_cast<int64>(token) * width;
  for (int i = threadIdx.x; i < width / PIECE; i += NUM_THREADS) own_input[i] = load_in_order(own + i * PIECE);
  for (int i = threadIdx.x; i < num_units; i += NUM_THREADS) left[i] = 0;
  const float4 found = __ldcg(reinterpret_cast<const float4*>(inputs + token));
  const InputBounds bounds = {found.x, found.y, found.z, found.w};
  const float2 reach = bounds.reach();
  const Penalties penalties = params.penalties(params.counts_in(counts, vocab_size));
  const auto logit_of = [&](int row) {  // by a warp
    const float sum = warp_sum(screened.part_of<8>(row, own_input, lane, WARP_SIZE));
    const float logit = to_float(from_float<Element>(sum));
    return penalties.counts == nullptr ? logit : penalties.apply(logit, row);
  };
  // What the units of this warp can be at most, one a lane: `see(unit, at_most)`.
  const float* of_units = highest + static_cast<int64>(token) * num_units;
  const auto for_own_units = [&](auto see) {
    for (int first = row_warp; first < num_units; first += WARP_SIZE * ROW_WARPS) {
      const int unit = first + lane * ROW_WARPS;
      see(unit, unit < num_units ? __ldcg(of_units + unit) : NEGATIVE_INFINITY);
    }
  };
  __syncthreads();

  const int wanted = params.scale == 0.0f ? 1 : params.top_k;
  const bool is_told = wanted > 0 && wanted <= MOST_WANTED;             // otherwise every token may be among them
  const int num_picks = is_told ? ceil_div(2 * wanted, ROW_WARPS) : 0;  // a few of the best may be one warp's
  uint64 above = ~0ull;                                                 // the unit that was picked last
  for (int pick = 0; pick < num_picks; pick++) {
    uint64 best = 0;
    for_own_units([&](int unit, float at_most) {
      const uint64 key = argmax_key(at_most, unit);
      if (unit < num_units && key < above) best = max(best, key);
    });
    above = best = warp_best(best);
    float logit = NEGATIVE_INFINITY;
    if (best != 0) logit = logit_of(screened.likeliest_row(argmax_row(best), token, reach));
    if (lane == 0) shared.picked[pick][warp] = ordered_bits(logit);
  }
  sync_cluster();
  const int num_picked = num_picks * ROW_WARPS;
  for (int i = threadIdx.x; i < num_picked; i += NUM_THREADS) {
    const int its_warp = i % ROW_WARPS;
    shared.of_all[i] = load_from(&shared.picked[i / ROW_WARPS][its_warp % NUM_WARPS], its_warp / NUM_WARPS);
  }
  __syncthreads();
  if (threadIdx.x < num_picked) {
    const uint32 own_logit = shared.of_all[threadIdx.x];
    int place = 0;
#pragma unroll 8
    for (int i = 0; i < num_picked; i++) {
      const uint32 other = shared.of_all[i];
      place += other > own_logit || (other == own_logit && i < threadIdx.x);
    }
    if (place == wanted - 1) shared.reached = own_logit;
  }
  __syncthreads();
  const float reached = is_told ? argmax_value(static_cast<uint64>(shared.reached) << 32) : NEGATIVE_INFINITY;
  float enough = reached - fabsf(reached) * lost_in_rounding(Element()) - 1e-6f;
  if (params.scale > 0.0f) enough -= KEY_STEP / params.scale;
  const auto reaches = [=](float highest_here) { return !(highest_here * bounds.scale < enough); };

  for_own_units([&](int lanes_unit, float at_most) {
    uint32 units = __ballot_sync(FULL_WARP, lanes_unit < num_units && reaches(at_most));
    for (; units != 0; units &= units - 1) {
      const int unit = __shfl_sync(FULL_WARP, lanes_unit, __ffs(units) - 1);
      const uint32 its_pair = screened.pair(unit, token, lane);
      uint32 votes[2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = unit * UNIT_ROWS + row_of_word(lane, half);
        const float highest_here = screened.highest_of(row, its_pair, half, reach);
        votes[half] = __ballot_sync(FULL_WARP, row < vocab_size && reaches(highest_here));
      }
      if (lane < CLUSTER) store_to(left + unit, lane, in_order_of_rows(votes[0], votes[1]));
    }
  });
  sync_cluster();  // nobody reads or writes another one's shared memory any more
  // Every thread block lists all rows that are left, so many at a time, and its warps multiply some of them.
  const int each = ceil_div(num_units, NUM_THREADS);
  const int begin = min(static_cast<int>(threadIdx.x) * each, num_units), end = min(begin + each, num_units);
  int mine = 0;
  for (int unit = begin; unit < end; unit++) mine += __popcll(left[unit]);
  int through = mine;
#pragma unroll
  for (int step = 1; step < WARP_SIZE; step *= 2) {
    const int below = __shfl_up_sync(FULL_WARP, through, step);
    if (lane >= step) through += below;
  }
  if (lane == WARP_SIZE - 1) shared.starts[warp] = through;
  __syncthreads();
  const uint32 of_lane = lane < NUM_WARPS ? shared.starts[lane] : 0;
  const int start = static_cast<int>(__reduce_add_sync(FULL_WARP, lane < warp ? of_lane : 0)) + through - mine;
  const int total = static_cast<int>(__reduce_add_sync(FULL_WARP, of_lane));
  const int64 first = static_cast<int64>(token) * room;
#pragma unroll 1
  for (int done = 0; done < total; done += MOST_LISTED) {
    int at = start - done;
    for (int unit = begin; unit < end && at < MOST_LISTED && at + mine > 0; unit++) {
      for (uint64 rows_here = left[unit]; rows_here != 0; rows_here &= rows_here - 1, at++) {
        const int row = unit * UNIT_ROWS + __ffsll(static_cast<int64>(rows_here)) - 1;
        if (at >= 0 && at < MOST_LISTED) shared.listed[at] = row;
      }
    }
    __syncthreads();
    for (int i = row_warp; i < min(total - done, MOST_LISTED); i += ROW_WARPS) {
      const int row = shared.listed[i];
      const float logit = logit_of(row);
      if (lane != 0) continue;
      listed_ids[first + done + i] = row;
      logits[first + done + i] = logit;
    }
    __syncthreads();
  }
  if (rank == 0 && threadIdx.x == 0) {
    num_listed[token] = total;
    next.take(token, 0, before);
  }
}
