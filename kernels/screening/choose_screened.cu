// The end of a decode step whose vocabulary was screened: each sequence's most likely token, the first of equals,
// from exact logits of the rows that may have the highest one. The state moves on.
//
// The best row of the unit that can be the highest is multiplied first. What it has, no other token may be below:
// units that cannot reach it are left alone, and of the others the rows that cannot. With random weights of 2,048
// elements some ten of 150,000 rows are left. Where bounds say nothing (numbers that are not finite), all rows are
// multiplied.

#include "common/dependent_launch.cuh"
#include "sampling/next_state.cuh"
#include "screening/screened_rows.cuh"

constexpr int NUM_THREADS = 512, NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int AT_ONCE = 4;                                                // loads of a thread
constexpr int LISTED_UNITS = 32, LISTED_ROWS = LISTED_UNITS * UNIT_ROWS;  // at a time

struct Shared {
  uint64 best_of_warp[NUM_WARPS];
  float part_of_warp[NUM_WARPS];
  uint64 best;
  int num_rows, num_units;
  int rows[LISTED_ROWS];
};

// What the units of a token can be at most, those of a thread, several loads at a time.
template <typename See>
__device__ __forceinline__ void for_own_units(const float* of_units, int num_units, See see) {
#pragma unroll 1
  for (int first = 0; first < num_units; first += AT_ONCE * NUM_THREADS) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int unit = first + i * NUM_THREADS + threadIdx.x;
      if (unit < num_units) see(unit, __ldcg(of_units + unit));
    }
  }
}

// All threads get it.
__device__ __forceinline__ uint64 block_best(Shared& shared, uint64 best) {
  best = warp_best(best);
  if (threadIdx.x % WARP_SIZE == 0) shared.best_of_warp[threadIdx.x / WARP_SIZE] = best;
  __syncthreads();
  best = shared.best_of_warp[threadIdx.x % NUM_WARPS];
  return warp_best(best);
}

// Grid: (num_tokens), 512 threads; the token's input is dynamic shared memory, with a place for every unit behind
// it.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    choose_screened(int* __restrict__ token_ids,         // [num_tokens]: the next tokens
                    int* __restrict__ positions,         // [num_tokens]: moved on, where not below 0
                    int* __restrict__ seq_lens,          // [num_tokens]: moved on, likewise
                    int* __restrict__ history,           // [history_len, num_tokens]: the tokens of the last steps
                    int* __restrict__ step,              // [1]: moved on; says where in the history
                    uint32* __restrict__ arrivals,       // [1], zero before and after
                    const uint32* estimates,             // [num_units, columns, UNIT_WORDS]
                    const float* highest,                // [columns, num_units]
                    const RowBounds* __restrict__ rows,  // [num_units, UNIT_ROWS]
                    const InputBounds* inputs,           // [columns]
                    const Element* input,                // [num_tokens, width]
                    const Element* __restrict__ weight,  // [vocab_size, width]
                    int columns, int num_units, int width, int vocab_size, int history_len) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Shared shared;
  uint4* own_input = reinterpret_cast<uint4*>(memory);
  int* units = reinterpret_cast<int*>(memory + width * sizeof(Element));
  const int token = blockIdx.x, lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
  const Screened screened = {estimates, highest, rows, weight, columns, num_units, width, vocab_size};
  if (threadIdx.x == 0) {
    shared.num_units = shared.num_rows = 0;
    shared.best = 0;
  }
  wait_for_previous_kernel();
  const NextState next = {token_ids,  positions, seq_lens, history, step, arrivals, static_cast<int>(gridDim.x),
                          history_len};
  const NextState::Before before = next.look(token);
  if (before.position < 0) {  // padding, of which nothing is known
    if (threadIdx.x == 0) next.take(token, 0, before);
    return;
  }
  const Element* own = input + static_cast<int64>(token) * width;
  for (int i = threadIdx.x; i < width / PIECE; i += NUM_THREADS) own_input[i] = load_in_order(own + i * PIECE);
  const float4 found = __ldcg(reinterpret_cast<const float4*>(inputs + token));
  const InputBounds bounds = {found.x, found.y, found.z, found.w};
  const float2 reach = bounds.reach();
  const float* of_units = highest + static_cast<int64>(token) * num_units;
  uint64 best = 0;
  for_own_units(of_units, num_units, [&](int unit, float at_most) { best = max(best, argmax_key(at_most, unit)); });
  const int likely_unit = argmax_row(block_best(shared, best));
  // Every warp for itself: nobody need wait for another.
  const int likely = screened.likeliest_row(likely_unit, token, reach);
  // By all threads: in another order of sums than below, for which bounds have room.
  const float part = warp_sum(screened.part_of<1>(likely, own_input, threadIdx.x, NUM_THREADS));
  if (lane == 0) shared.part_of_warp[warp] = part;
  __syncthreads();
  const float least = to_float(from_float<Element>(warp_sum(lane < NUM_WARPS ? shared.part_of_warp[lane] : 0.0f)));
  const float enough = least - fabsf(least) * lost_in_rounding(Element()) - 1e-6f;
  const auto reaches = [=](float highest) { return !(highest * bounds.scale < enough); };
  for_own_units(of_units, num_units, [&](int unit, float at_most) {
    if (reaches(at_most)) units[atomicAdd(&shared.num_units, 1)] = unit;
  });
  __syncthreads();
  const int num_units_left = shared.num_units;
  best = 0;
#pragma unroll 1
  for (int begin = 0; begin < num_units_left; begin += LISTED_UNITS) {
    const int words = min(LISTED_UNITS, num_units_left - begin) * UNIT_WORDS;
    for (int i = threadIdx.x; i < words; i += NUM_THREADS) {
      const int unit = units[begin + i / UNIT_WORDS], word = i % UNIT_WORDS;
      const uint32 bits = screened.pair(unit, token, word);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = unit * UNIT_ROWS + row_of_word(word, half);
        if (row < vocab_size && reaches(screened.highest_of(row, bits, half, reach))) {
          shared.rows[atomicAdd(&shared.num_rows, 1)] = row;
        }
      }
    }
    __syncthreads();
    for (int i = warp; i < shared.num_rows; i += NUM_WARPS) {
      const int row = shared.rows[i];
      const float logit = warp_sum(screened.part_of<8>(row, own_input, lane, WARP_SIZE));
      best = max(best, argmax_key(to_float(from_float<Element>(logit)), row));
    }
    __syncthreads();
    if (threadIdx.x == 0) shared.num_rows = 0;
    __syncthreads();
  }
  if (lane == 0) atomicMax(&shared.best, best);
  __syncthreads();
  if (threadIdx.x == 0) next.take(token, argmax_row(shared.best), before);
}
