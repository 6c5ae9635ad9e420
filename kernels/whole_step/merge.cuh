// The end of attention in persistent_decode.cu: the softmaxes of all warps become one (Milakov and Gimelshein 2018,
// arXiv 1805.02867), which is published.

#pragma once

#include "common/online_softmax.cuh"
#include "whole_step/results.cuh"
#include "whole_step/tiles.cuh"

// The softmax of `COUNT` states and, with a score above -inf, of one more token: the work of a warp, each of whose
// lanes has two dimensions and works out all weights. Lanes that exchange them would take three times as long.
template <int COUNT>
struct MergedStates {
  float highest, all, new_weight;
  float2 output;  // not divided by `all` yet

  // The states from `first` on; `new_value`: of the lane's dimensions.
  __device__ __forceinline__ MergedStates(const Shared& shared, int first, int row, float new_score,
                                          float2 new_value) {
    const Place place;
    float2 states[COUNT], parts[COUNT];
    highest = new_score;
#pragma unroll
    for (int s = 0; s < COUNT; s++) {
      states[s] = shared.state[first + s][row];
      parts[s] = *reinterpret_cast<const float2*>(&shared.output[first + s][row][2 * place.lane]);
      highest = fmaxf(highest, states[s].x);
    }
    all = new_weight = exp2_below(new_score, highest);
    output = make_float2(new_weight * new_value.x, new_weight * new_value.y);
#pragma unroll
    for (int s = 0; s < COUNT; s++) {
      const float weight = exp2_below(states[s].x, highest);
      all += weight * states[s].y;
      output.x += weight * parts[s].x, output.y += weight * parts[s].y;
    }
  }
};

// All states and the new token put together and published: a warp for each row.
__device__ __forceinline__ void publish_attended(Shared& shared, const Published& published, const Column& column,
                                                 int64 to_other) {
  const Place place;
  const int row = column.warp_of(place);
  if (row >= GROUP_SIZE) return;
  const int dim = 2 * place.lane, head = column.kv_head * GROUP_SIZE + row,
            part = IS_CLUSTERED ? 0 : column.token * SPLITS + column.split;
  const bool with_new = column.split == 0 && column.position >= 0;
  Element* to = published.attended(0) + part * ATTENDED + place_of(ATTENDED, head * HEAD_SIZE + dim);
  settle(to);
  float2 value;
  unpack_pair<Element>(*reinterpret_cast<const uint32*>(shared.vectors[column.seat][GROUP_SIZE + 1] + dim), value.x,
                       value.y);
  if (!with_new) value = make_float2(0.0f, 0.0f);
  const float new_score = with_new ? shared.new_score[column.seat][row] : NEGATIVE_INFINITY;
  const MergedStates<SEAT_STATES> merged(shared, column.seat * SEAT_STATES, row, new_score, value);
  const float inverse = merged.all > 0.0f ? __fdividef(1.0f, merged.all) : 0.0f;
  const uint32 word = pack_pair<Element>(merged.output.x * inverse, merged.output.y * inverse);
#pragma unroll
  for (int copy = 0; copy < COPIES; copy++) publish(reinterpret_cast<uint32*>(to + copy * Published::COPY), word);
#pragma unroll
  for (int copy = 0; copy < COPIES; copy++)
    mark_not_there(reinterpret_cast<uint32*>(to + to_other + copy * Published::COPY));
  if (SPLITS > 1 && place.lane < COPIES) {
    uint32* lse = reinterpret_cast<uint32*>(published.lse(place.lane) + part * LSE_STRIDE + head);
    publish(lse, __float_as_uint(merged.highest + log2f(merged.all)));
    mark_not_there(lse + to_other / PAIR);
  }
}
