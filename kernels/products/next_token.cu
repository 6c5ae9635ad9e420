// The end of a decode step: the last norm and the product with the vocabulary, of which every thread block offers
// its best row as the next token.

#include "products/best_rows.cuh"
#include "products/small_batch_product.cuh"

constexpr int ROW_STEPS = IN_FEATURES / STEP;  // of a whole row
constexpr int ROUND = ROW_STEPS % 8 == 0 && ROW_STEPS >= 32 ? 8
                      : ROW_STEPS % 6 == 0                  ? 6
                                                            : 4;  // steps read at a time
static_assert(ROW_STEPS % (2 * ROUND) == 0, "whole pairs of rounds");

struct HeadShared {
  ProductShared product;
  uint4 input[IN_FEATURES / PIECE][MAX_TOKENS];
  BestShared<MAX_TOKENS> best;
};

// Here a warp takes whole rows, 16 at a time, and goes on to the next ones while those are under way.
// Grid: any number of thread blocks of NUM_WARPS * 32 threads; HeadShared is dynamic shared memory.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    logits_argmax(int* __restrict__ token_ids,         // [num_tokens]: the next tokens
                  int* __restrict__ positions,         // [num_tokens]: moved on, where not below 0
                  int* __restrict__ seq_lens,          // [num_tokens]: moved on, likewise
                  int* __restrict__ history,           // [history_len, num_tokens]: the tokens of the last steps
                  int* __restrict__ step,              // [1]: moved on; says where in the history
                  Element* __restrict__ logits,        // [num_tokens, vocab_size], or null
                  uint64* __restrict__ best,           // [num_tokens], zero before and after
                  uint32* __restrict__ arrivals,       // [1], zero before and after
                  const Element* __restrict__ weight,  // [vocab_size, IN_FEATURES]
                  const Element* __restrict__ input,   // [num_tokens, IN_FEATURES]
                  const Element* __restrict__ norm_weight,  // [IN_FEATURES], with NORM
                  const Element* __restrict__ norm_bias,    // [IN_FEATURES], or null
                  int num_tokens, int vocab_size, int history_len, float epsilon) {
  extern __shared__ __align__(16) unsigned char memory[];
  HeadShared& shared = *reinterpret_cast<HeadShared*>(memory);
  let_next_kernel_start();
  const WarpPlace place;
  uint4 weights[2][ROUND][2];
  const int num_tiles = ceil_div(vocab_size, TILE_ROWS), num_warps = gridDim.x * NUM_WARPS;
  const auto fetch = [&](int which, int tile, int round) {
    const int row = tile * TILE_ROWS + place.g;
    const Element* above = weight + static_cast<int64>(min(row, vocab_size - 1)) * IN_FEATURES + place.q * PIECE;
    const Element* below =
        weight + static_cast<int64>(min(row + 8, vocab_size - 1)) * IN_FEATURES + place.q * PIECE;
#pragma unroll
    for (int s = 0; s < ROUND; s++) {
      weights[which][s][0] = load_in_order(above + (round * ROUND + s) * STEP);
      weights[which][s][1] = load_in_order(below + (round * ROUND + s) * STEP);
    }
  };
  int tile = blockIdx.x * NUM_WARPS + place.warp;
  if (tile < num_tiles) fetch(0, tile, 0);
  if (threadIdx.x < MAX_TOKENS) shared.best.best[threadIdx.x] = 0;
#if NORM
  fetch_norm(shared.product, norm_weight, norm_bias);
  normalise(place, shared.product, input, num_tokens, epsilon,
            [&](int t, int s, uint4 piece) { shared.input[place.first / PIECE + s * 4][8 * t + place.g] = piece; });
#else
  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < IN_FEATURES / PIECE * MAX_TOKENS; i += NUM_THREADS) {
    const int token = i % MAX_TOKENS, piece = i / MAX_TOKENS;
    shared.input[piece][token] =
        token < num_tokens ? load_fresh_16(input + token * IN_FEATURES + piece * PIECE) : make_uint4(0, 0, 0, 0);
  }
#endif
  __syncthreads();
  uint64 mine[TOKEN_TILES][2] = {};  // best of tokens 2q and 2q + 1 of each tile of tokens
  for (; tile < num_tiles; tile += num_warps) {
    float sums[TOKEN_TILES][4] = {};
    const auto multiply = [&](int which, int round) {
#pragma unroll
      for (int s = 0; s < ROUND; s++) {
#pragma unroll
        for (int t = 0; t < TOKEN_TILES; t++) {
          const uint4 piece = shared.input[(round * ROUND + s) * 4 + place.q][8 * t + place.g];
          multiply_step(sums[t], weights[which][s][0], weights[which][s][1], piece);
        }
      }
    };
#pragma unroll 1
    for (int round = 0; round < ROW_STEPS / ROUND; round += 2) {
      fetch(1, tile, round + 1);
      multiply(0, round);
      if (round + 2 < ROW_STEPS / ROUND) {
        fetch(0, tile, round + 2);
      } else if (tile + num_warps < num_tiles) {
        fetch(0, tile + num_warps, 0);
      }
      multiply(1, round + 1);
    }
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; t++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int token = 8 * t + 2 * place.q + i % 2, row = tile * TILE_ROWS + place.g + i / 2 * 8;
        if (token >= num_tokens || row >= vocab_size) continue;
        const Element value = from_float<Element>(sums[t][i]);
        if (logits != nullptr) logits[static_cast<int64>(token) * vocab_size + row] = value;
        mine[t][i % 2] = max(mine[t][i % 2], argmax_key(to_float(value), row));
      }
    }
  }
#pragma unroll
  for (int t = 0; t < TOKEN_TILES; t++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int token = 8 * t + 2 * place.q + i;
      if (token < num_tokens && mine[t][i] > 0) atomicMax(&shared.best.best[token], mine[t][i]);
    }
  }
  const NextTokens next = {token_ids, positions, seq_lens, history, step, best, arrivals, num_tokens, history_len};
  take_next_tokens(next, shared.best, NUM_THREADS, [] { __syncthreads(); });
}
