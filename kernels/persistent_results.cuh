// From the sums of the warps of persistent_decode.cu to what a thread publishes of them.

#pragma once

#include "persistent_weights.cuh"

// Lays a warp's sums of 16 rows beside those of the others.
__device__ __forceinline__ void share_sums(float (&to)[NUM_TOKENS * SUM_STRIDE], const float (&sums)[4],
                                           const Place& place, int tile) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int token = 2 * place.q + i % 2, row = (2 * tile + i / 2) * UNIT + place.g;
    if (token < NUM_TOKENS && row < RESULT_ROWS) to[token * SUM_STRIDE + row] = sums[i];
  }
}

__device__ __forceinline__ float total(const float (&sums)[NUM_WARPS][NUM_TOKENS * SUM_STRIDE], int row,
                                       int token) {
  float parts[2] = {};  // two chains of sums that do not wait for each other
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) parts[w % 2] += sums[w][token * SUM_STRIDE + row];
  return parts[0] + parts[1];
}

// Which result of a product a thread finishes, and where it is published. Two neighbours have a word together.
struct Result {
  int row, token;
  bool mine;   // the thread's warp has results at all
  bool valid;  // there is such a row
  Element* place;

  // Behind a norm: queries, keys and values once, the middle in copies.
  __device__ __forceinline__ Result(const Published& published, int half) {
    constexpr int RESULTS = RESULT_ROWS * NUM_TOKENS;
    const Place at;
    const int copies = half == 0 ? 1 : COPIES, copy = at.thread / RESULTS;
    row = at.thread % RESULT_ROWS, token = at.thread % RESULTS / RESULT_ROWS;
    const Unit unit(half, row / UNIT);
    mine = at.thread - at.lane < copies * RESULTS;
    valid = copy < copies && unit.exists && (half == 0 || !GATED || row / UNIT % 2 == 0);
    place = half == 0 ? published.qkv() + token * QKV_ROWS : published.middle(copy) + token * MIDDLE;
    place += unit.row + row % UNIT;
  }

  // Of the residual stream after a half.
  __device__ __forceinline__ static Result of_stream(const Published& published, int half) {
    constexpr int RESULTS = UNIT * NUM_TOKENS;
    const Place at;
    const int copy = at.thread / RESULTS;
    Result result;
    result.row = at.thread % UNIT, result.token = at.thread % RESULTS / UNIT;
    result.mine = at.thread - at.lane < COPIES * RESULTS, result.valid = copy < COPIES;
    result.place = published.stream(min(copy, COPIES - 1), half) + result.token * HIDDEN + producer_index() * UNIT +
                   result.row;
    return result;
  }

  __device__ __forceinline__ void publish(float value, int64 to_other) const {
    const float next = __shfl_down_sync(FULL_WARP, value, 1);
    if (!valid || threadIdx.x % 2) return;
    ::publish(reinterpret_cast<uint32*>(place), pack_pair<Element>(value, next));
    mark_not_there(reinterpret_cast<uint32*>(place + to_other));
  }

 private:
  Result() = default;
};
