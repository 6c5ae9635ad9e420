// From the sums of the warps of persistent_decode.cu to what a thread publishes of them.

#pragma once

#include "whole_step/weights.cuh"

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

// An address that is worked out here, and not when the number that goes there is known.
template <typename T>
__device__ __forceinline__ void settle(T*& address) {
  asm volatile("" : "+l"(address));
}

// The word of a lane's row and of the row beside it, which the next lane has.
__device__ __forceinline__ uint32 pair_of_lanes(float value) {
  const float other = __shfl_xor_sync(FULL_WARP, value, 1);
  return Place().lane % 2 ? pack_pair<Element>(other, value) : pack_pair<Element>(value, other);
}

// A row of a product, which a lane finishes. Two neighbouring lanes publish what both have made as one word, each
// in copies of its own: one in LANES copies a lane.
//
// NOTE: few warps do that. As many warps as there are copies would all read the same sums, and take turns.
template <int LANES>
struct Result {
  int row, token;         // the row, among those of the thread block
  int copy;               // the first one of the lane
  bool takes_part, mine;  // the warp finishes rows; there is such a row
  Element* place;         // of the word in the first copy

  // By lanes that stay together.
  __device__ __forceinline__ void publish(float value, int64 to_other) const {
    constexpr int TURNS = ceil_div(COPIES, LANES);
    const uint32 word = pair_of_lanes(value);
    Element* const other = place + to_other;
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
      if (mine && copy + i * LANES < COPIES)
        ::publish(reinterpret_cast<uint32*>(place + i * LANES * Published::COPY), word);
    }
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
      if (mine && copy + i * LANES < COPIES)
        mark_not_there(reinterpret_cast<uint32*>(other + i * LANES * Published::COPY));
    }
  }
};

// Of the middle, behind a norm; a gate's lane has its value too.
struct MiddleResult : Result<2> {
  __device__ __forceinline__ explicit MiddleResult(const Published& published) {
    constexpr int ROWS = MIDDLE_UNITS * UNIT;
    const Place at;
    const int index = at.thread % ROWS;
    token = at.thread / ROWS, takes_part = at.warp * WARP_SIZE < ROWS * NUM_TOKENS;
    row = index / UNIT * PAIRED * UNIT + index % UNIT, copy = at.lane % 2;
    const Unit unit(1, row / UNIT);
    mine = token < NUM_TOKENS && unit.exists, token = min(token, NUM_TOKENS - 1);
    place = published.middle(copy) + token * MIDDLE + place_of(MIDDLE, unit.row + index % UNIT / 2 * 2);
    settle(place);
  }
};

// Of the residual stream after a half.
constexpr int STREAM_LANES = WARP_SIZE / (UNIT * NUM_TOKENS) * 2;  // that publish the same word
struct StreamResult : Result<STREAM_LANES> {
  __device__ __forceinline__ StreamResult(const Published& published, int half) {
    const Place at;
    row = at.lane % UNIT, token = at.lane / UNIT % NUM_TOKENS;
    copy = at.lane / (UNIT * NUM_TOKENS) * 2 + at.lane % 2;
    takes_part = at.warp == 0, mine = takes_part && copy < STREAM_LANES;  // of three tokens some lanes have none
    place = published.stream(copy, half) + token * HIDDEN + place_of(HIDDEN, stream_unit() * UNIT + row / 2 * 2);
    settle(place);
  }
};

#if CLUSTER > 1
// Of a head's vectors: sent to those of the cluster that attend, by one of two lanes to each.
struct QkvResult {
  int row;
  static constexpr int token = 0;
  bool takes_part, mine;
  uint32* place;     // of the word, in the shared memory of this thread block
  uint64* received;  // likewise, the barrier that is told

  __device__ __forceinline__ QkvResult(Shared& shared, const Published&) {
    static_assert(SHARES == 2, "two lanes send to two thread blocks");
    const Place at;
    row = at.thread, takes_part = at.warp * WARP_SIZE < QKV_UNITS * UNIT;
    mine = at.thread < QKV_UNITS * UNIT && Unit(0, row / UNIT).exists;
    const int of_head = cluster_rank() * QKV_UNITS * UNIT + row;
    place = reinterpret_cast<uint32*>(&shared.vectors[0][0][0]) + of_head / 2;
    received = &shared.vectors_filled;
  }

  __device__ __forceinline__ void publish(float value, int64) const {
    const uint32 word = pair_of_lanes(value);
    if (mine) send_to(place, received, Place().lane % 2, word);
  }
};
#else
// Of queries, keys and values: published once.
struct QkvResult {
  int row, token;
  bool takes_part, mine;
  Element* place;

  __device__ __forceinline__ QkvResult(const Shared&, const Published& published) {
    constexpr int ROWS = QKV_UNITS * UNIT;
    const Place at;
    row = at.thread % ROWS, token = at.thread / ROWS, takes_part = at.warp * WARP_SIZE < ROWS * NUM_TOKENS;
    const Unit unit(0, row / UNIT);
    mine = token < NUM_TOKENS && unit.exists, token = min(token, NUM_TOKENS - 1);
    place = published.qkv() + token * QKV_ROWS + unit.row + row % UNIT / 2 * 2;
    settle(place);
  }

  __device__ __forceinline__ void publish(float value, int64 to_other) const {
    const uint32 word = pair_of_lanes(value);
    if (!mine) return;
    if (Place().lane % 2 == 0) {
      ::publish(reinterpret_cast<uint32*>(place), word);
    } else {
      mark_not_there(reinterpret_cast<uint32*>(place + to_other));
    }
  }
};
#endif
