// From the sums of the warps of persistent_decode.cu to what a thread publishes of them.

#pragma once

#include "persistent_weights.cuh"

// A warp's sums of 8 rows beside those of the others; `sums` as `multiply_unit` leaves them.
__device__ __forceinline__ void share_sums(Sums& to, const float (&sums)[4], const Place& place, int unit) {
  if (place.q < NUM_TOKENS) to[place.q][unit * UNIT + place.g][place.warp] = sums[0] + sums[3];
}

// The sum of all warps.
__device__ __forceinline__ float total(const float (&of_warps)[NUM_WARPS]) {
#if NUM_WARPS % 4 == 0
  const float4* fours = reinterpret_cast<const float4*>(of_warps);
  float4 sum = fours[0];
#pragma unroll
  for (int i = 1; i < NUM_WARPS / 4; i++)
    sum.x += fours[i].x, sum.y += fours[i].y, sum.z += fours[i].z, sum.w += fours[i].w;
  return (sum.x + sum.y) + (sum.z + sum.w);
#else
  const float2* twos = reinterpret_cast<const float2*>(of_warps);
  float2 sum = twos[0];
#pragma unroll
  for (int i = 1; i < NUM_WARPS / 2; i++) sum.x += twos[i].x, sum.y += twos[i].y;
  return sum.x + sum.y;
#endif
}

// Two neighbouring rows of a product, which a thread finishes and publishes as one word.
struct Result {
  int row, token;  // the first row, among those of the thread block
  bool mine;       // there are such rows
  Element* place;

  // Behind a norm: queries, keys and values once, the middle in copies; a gate's thread has its value too.
  __device__ __forceinline__ Result(const Published& published, int half) {
    constexpr int PAIRS = UNITS * UNIT / 2, GATED_PAIRS = PAIRS / PAIRED;  // of a token
    const Place at;
    const int pairs = half == 0 ? PAIRS : GATED_PAIRS, paired = half == 0 ? 1 : PAIRED;
    const int copy = at.thread / (pairs * NUM_TOKENS), pair = at.thread % pairs;
    token = at.thread / pairs % NUM_TOKENS;
    row = pair / (UNIT / 2) * paired * UNIT + pair % (UNIT / 2) * 2;
    const Unit unit(half, row / UNIT);
    mine = copy < (half == 0 ? 1 : COPIES) && unit.exists;
    const int at_row = unit.row + row % UNIT;
    place = half == 0 ? published.qkv() + token * QKV_ROWS + at_row
                      : published.middle(copy) + token * MIDDLE + place_of(MIDDLE, at_row);
  }

  // Of the residual stream after a half.
  __device__ __forceinline__ static Result of_stream(const Published& published, int half) {
    constexpr int OF_TOKEN = UNIT / 2, RESULTS = OF_TOKEN * NUM_TOKENS;
    const Place at;
    const int copy = at.thread / RESULTS;
    Result result;
    result.row = at.thread % OF_TOKEN * 2, result.token = at.thread % RESULTS / OF_TOKEN;
    result.mine = copy < COPIES;
    result.place = published.stream(min(copy, COPIES - 1), half) + result.token * HIDDEN +
                   place_of(HIDDEN, producer_index() * UNIT + result.row);
    return result;
  }

  __device__ __forceinline__ void publish(float low, float high, int64 to_other) const {
    ::publish(reinterpret_cast<uint32*>(place), pack_pair<Element>(low, high));
    mark_not_there(reinterpret_cast<uint32*>(place + to_other));
  }

 private:
  Result() = default;
};
