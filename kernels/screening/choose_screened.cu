// The end of a decode step whose vocabulary was screened: each sequence's most likely token, the first of equals,
// from exact logits of the rows that may have the highest one. The state moves on.
//
// The best row of the unit that can be the highest is multiplied first. What it has, no other token may be below:
// units that cannot reach it are left alone, and of the others the rows that cannot. With random weights of 2,048
// elements some ten of 150,000 rows are left. Where bounds say nothing (numbers that are not finite), all rows are
// multiplied.

#include "common/argmax.cuh"
#include "common/dependent_launch.cuh"
#include "common/row_pieces.cuh"
#include "sampling/next_state.cuh"
#include "screening/bounds.cuh"

constexpr int NUM_THREADS = 512, NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int AT_ONCE = 4;                                                // loads of a thread
constexpr int LISTED_UNITS = 32, LISTED_ROWS = LISTED_UNITS * UNIT_ROWS;  // at a time

// How far below another one a logit may lie, relative to it, and still be the same when both are rounded.
__device__ __forceinline__ constexpr float lost_in_rounding(__half) { return 0x1p-10f; }
__device__ __forceinline__ constexpr float lost_in_rounding(__nv_bfloat16) { return 0x1p-7f; }

struct Shared {
  uint64 best_of_warp[NUM_WARPS];
  float part_of_warp[NUM_WARPS];
  uint64 best;
  int num_rows, num_units;
  int rows[LISTED_ROWS];
};

// What the kernel reads.
struct Screened {
  const uint32* estimates;  // [num_units, columns, UNIT_WORDS], pairs of bfloat16
  const float* highest;     // [columns, num_units], in units of a token's scale
  const RowBounds* rows;    // [num_units, UNIT_ROWS]
  const Element* weight;    // [vocab_size, width]
  int columns, num_units, width, vocab_size;

  __device__ __forceinline__ uint32 pair(int unit, int token, int word) const {
    return __ldcg(estimates + (static_cast<int64>(unit) * columns + token) * UNIT_WORDS + word);
  }

  // What a row of the word `bits` can be at most, the first or the second one.
  __device__ __forceinline__ float highest_of(int row, uint32 bits, int half, float2 reach) const {
    const float4 own = __ldg(reinterpret_cast<const float4*>(rows + row));
    const RowBounds bounds = {own.x, own.y, own.z, own.w};
    return highest_logit(__uint_as_float(half ? bits & 0xffff0000u : bits << 16), bounds, reach);
  }

  // A row's share of `num_lanes` lanes that multiply it together, whose sum is its logit.
  template <int PIECES>
  __device__ __forceinline__ float part_of(int row, const uint4* input, int number, int num_lanes) const {
    const Element* from = weight + static_cast<int64>(row) * width;
    const int num_pieces = width / PIECE;
    float sum = 0.0f;
#pragma unroll 1
    for (int first = number; first < num_pieces; first += PIECES * num_lanes) {
      uint4 pieces[PIECES];
#pragma unroll
      for (int i = 0; i < PIECES; i++) {
        const int piece = first + i * num_lanes;
        pieces[i] = piece < num_pieces ? load_once(from + piece * PIECE) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < PIECES; i++) {
        const int piece = first + i * num_lanes;
        if (piece >= num_pieces) break;
        float left[PIECE], right[PIECE];
        unpack(pieces[i], left);
        unpack(input[piece], right);
#pragma unroll
        for (int j = 0; j < PIECE; j++) sum = fmaf(left[j], right[j], sum);
      }
    }
    return sum;
  }
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

__device__ __forceinline__ uint64 warp_best(uint64 best) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) best = max(best, __shfl_xor_sync(FULL_WARP, best, lanes));
  return best;
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
  const uint32 its_pair = screened.pair(likely_unit, token, lane);
  best = 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = likely_unit * UNIT_ROWS + row_of_word(lane, half);
    const float at_most = screened.highest_of(row, its_pair, half, reach);
    if (row < vocab_size) best = max(best, argmax_key(at_most, row));
  }
  const int likely = argmax_row(warp_best(best));
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
