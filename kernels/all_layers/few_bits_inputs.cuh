// The inputs of products with weights of few bits: each lane has a run's (few_bits_order.cuh). Included by
// layer_inputs.cuh.

#pragma once

#include "all_layers/few_bits_slot_input.cuh"

// The residual stream behind a norm. Has a barrier among all warps that multiply in it.
template <int PRODUCT>
__device__ __forceinline__ void collect_normed(uint4 (&pieces)[Order<PRODUCT>::PIECES], Shared& shared,
                                               const Element* row, bool awaited,
                                               const uint4 (&scales)[Order<PRODUCT>::PIECES], float epsilon) {
  constexpr int PIECES = Order<PRODUCT>::PIECES;
  const Place place;
  const int first = Order<PRODUCT>::first(place);
  look_until_there([&] {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const int inner = first + Order<PRODUCT>::offset(i);
      highest = max(highest, look_at(pieces[i], row + min(inner, HIDDEN - PIECE)));
      if (inner >= HIDDEN) pieces[i] = make_uint4(0, 0, 0, 0);
    }
    return awaited && highest == NOT_THERE;
  });
  float sum = 0.0f, values[PIECE], factors[PIECE];
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    unpack(pieces[i], values);
#pragma unroll
    for (int v = 0; v < PIECE; v++) sum += values[v] * values[v];
  }
  sum = warp_sum<16, 8>(warp_sum<2, 1>(sum));  // lanes with an odd g have the same runs once more
  if (place.lane == 0) shared.squares[place.warp][0] = sum;
  sync_warps();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) total += shared.squares[w][0];
  const float factor = rsqrtf(total / HIDDEN + epsilon);
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    unpack(pieces[i], values);
    unpack(scales[i], factors);
#pragma unroll
    for (int v = 0; v < PIECE; v++) values[v] = scaled_by_norm<NORM>(values[v] * factor, factors[v], 0.0f);
    pieces[i] = pack(values);
  }
}

// The residual stream behind a norm.
template <int PRODUCT>
struct StreamInput {
  static constexpr bool IS_HALFWAY = PRODUCT == UP;
  uint4 scales[Order<PRODUCT>::PIECES];  // the lane's

  // What is asked for before the rows are there.
  __device__ __forceinline__ void load(const Layer& layer) {
    const Element* weight = IS_HALFWAY ? layer.mlp_norm : layer.attention_norm;
    const int first = Order<PRODUCT>::first(Place());
#pragma unroll
    for (int i = 0; i < Order<PRODUCT>::PIECES; i++) {
      scales[i] = load_16(weight + min(first + Order<PRODUCT>::offset(i), HIDDEN - PIECE));
    }
  }

  // From what was published, or of the first layer from `hidden`.
  __device__ __forceinline__ void collect(uint4 (&pieces)[Order<PRODUCT>::PIECES], Shared& shared,
                                          const Published& from, const Element* hidden, float epsilon) {
    const Element* rows = from.mine() + (IS_HALFWAY ? Published::HALFWAY_AT : Published::STREAM_AT);
    collect_normed<PRODUCT>(pieces, shared, hidden == nullptr ? rows : hidden, hidden == nullptr, scales, epsilon);
  }
};

// What is attended: the splits of a context put together, half of which are each half's of the warp.
__device__ __forceinline__ void collect_attended(uint4 (&pieces)[Order<OUT>::PIECES], Shared&,
                                                 const Published& published) {
  using Of = Order<OUT>;
  constexpr int LANE_SPLITS = SPLITS > 2 ? SPLITS / 2 : 1, HALVES = SPLITS > 1 ? 2 : 1;
  const Place place;
  const int first = Of::first(place), half = place.g % HALVES;
  uint4 parts[LANE_SPLITS][Of::PIECES];
  uint32 states[LANE_SPLITS][Of::SLOTS_OF_ROW] = {};  // a lane's elements of a run are in one head
  look_until_there([&] {
    uint32 highest = 0;
#pragma unroll
    for (int s = 0; s < LANE_SPLITS; s++) {
      const int row = half + HALVES * s;
      const Element* from = published.mine() + Published::ATTENDED_AT + row * Of::PADDED + first;
#pragma unroll
      for (int i = 0; i < Of::PIECES; i++) highest = max(highest, look_at(parts[s][i], from + Of::offset(i)));
#if SPLITS > 1
#pragma unroll
      for (int slot = 0; slot < Of::SLOTS_OF_ROW; slot++) {
        const int head = min(first + slot * SLOT_RUNS * Of::RUN, ATTENDED - 1) / HEAD_SIZE;
        uint32 word[1];
        look<1>(word, published.lse(blockIdx.x % COPIES, row) + head);
        highest = max(highest, states[s][slot] = word[0]);
      }
#endif
    }
    return highest == NOT_THERE;
  });
#if SPLITS > 1
#pragma unroll
  for (int slot = 0; slot < Of::SLOTS_OF_ROW; slot++) {
    float highest = NEGATIVE_INFINITY, all = 0.0f, weights[LANE_SPLITS];
#pragma unroll
    for (int s = 0; s < LANE_SPLITS; s++) highest = fmaxf(highest, __uint_as_float(states[s][slot]));
    highest = warp_max<4, 4>(highest);
#pragma unroll
    for (int s = 0; s < LANE_SPLITS; s++) {
      weights[s] = exp2_below(__uint_as_float(states[s][slot]), highest);
      all += weights[s];
    }
    all = warp_sum<4, 4>(all);
#pragma unroll
    for (int p = 0; p < Of::RUN_PIECES; p++) {
      const int i = slot * Of::RUN_PIECES + p;
      float sums[PIECE] = {}, values[PIECE];
#pragma unroll
      for (int s = 0; s < LANE_SPLITS; s++) {
        const float factor = all > 0.0f ? weights[s] / all : 0.0f;
        unpack(parts[s][i], values);
#pragma unroll
        for (int v = 0; v < PIECE; v++) sums[v] += factor > 0.0f ? values[v] * factor : 0.0f;
      }
#pragma unroll
      for (int v = 0; v < PIECE; v++) sums[v] = warp_sum<4, 4>(sums[v]);
      pieces[i] = pack(sums);
    }
  }
#else
#pragma unroll
  for (int i = 0; i < Of::PIECES; i++) pieces[i] = parts[0][i];
#endif
}

// Digits of piece i of a warp's middle, run by run, in the place of its elements. Without an unrolled loop: code
// that has no room in the cache of instructions takes longer than what it does.
template <int PRODUCT>
__device__ __forceinline__ void make_digits(WarpInput& memory, int i, const Place& place) {
  using Of = Order<PRODUCT>;
  const bool exists = i < Of::PIECES * WARP_RUNS;
  uint4& piece = memory.pieces[exists ? memory.at<PRODUCT>(i, place.q) : 0];
  Largest largest;
  largest.add(exists ? piece : make_uint4(0, 0, 0, 0));
  const DigitScale scale(largest.of_lanes<2 * Of::RUN_PIECES>());
  if (!exists) return;
  piece = both_digits_of<Of::KIND>(piece, scale.factor);
  if (place.q == 0 && i % Of::RUN_PIECES == 0) memory.worth[i / Of::RUN_PIECES].unit = scale.unit;
}

// A middle, into shared memory, each piece by one lane of the warp that multiplies by it.
__device__ __forceinline__ void collect_middle(Shared& shared, const Published& published) {
  using Of = Order<DOWN>;
  constexpr int PIECES = Of::PIECES * WARP_RUNS, LOADS = ceil_div(PIECES, 8);  // of a warp's lanes q, of a lane
  const Place place;
  const Element* const from =
      published.mine() + Published::MIDDLE_AT + run_of(place.warp, 0) * Of::RUN + place.q * (Of::RUN / 4);
  uint4 own[LOADS];
  // NOTE: a loop of its own, since `look_until_there` makes more spills of it.
#pragma unroll 1
  for (int looks = 0;; looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int j = 0; j < LOADS; j++) {
      const int i = 8 * j + place.g, run = i / Of::RUN_PIECES;  // run by run
      const int inner =
          (run / WARP_RUNS * SLOT_RUNS + run_of(0, run % WARP_RUNS)) * Of::RUN + i % Of::RUN_PIECES * PIECE;
      own[j] = make_uint4(0, 0, 0, 0);
      if (PIECES % 8 == 0 || i < PIECES) highest = max(highest, look_at(own[j], from + inner));
    }
    if (!__any_sync(FULL_WARP, highest == NOT_THERE)) break;
    if (looks == MAX_LOOKS) __trap();
  }
  WarpInput& to = input_memory(shared, place.warp);
#pragma unroll
  for (int j = 0; j < LOADS; j++) {
    if (PIECES % 8 == 0 || 8 * j + place.g < PIECES) to.pieces[to.at<DOWN>(8 * j + place.g, place.q)] = own[j];
  }
  if constexpr (Of::INTEGERS) {
#pragma unroll 2
    for (int j = 0; j < LOADS; j++) make_digits<DOWN>(to, 8 * j + place.g, place);
  }
  __syncwarp();
  finish_worth<DOWN>(to, place);
}
