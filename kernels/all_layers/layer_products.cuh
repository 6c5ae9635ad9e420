// The four products of a layer of streamed_layers.cu, from collected inputs and the ring of weights to what is
// published.

#pragma once

#include "all_layers/layer_inputs.cuh"
#include "common/activation.cuh"

// Where in the ring the multiplying warps are, and which sums they write next.
struct Reading {
  Ring<SLOTS> at;
  int turn = 0;
};

// A thread's result of a group of units: it is the sum of those of all warps.
struct Result {
  int row, unit, token;
  const float* sums;  // of the first warp

  __device__ __forceinline__ Result(const Shared& shared, const Place& place, int turn)
      : row(place.thread % UNIT),
        unit(place.thread / UNIT % MOST_UNITS),
        token(place.thread / (UNIT * MOST_UNITS)),
        sums(&shared.sums[turn][0][unit][token % TOKENS * UNIT]) {}

  // `rows_below`: of another row of the unit.
  __device__ __forceinline__ float total(int rows_below = 0) const {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++) sum += sums[w * MOST_UNITS * TOKEN_ROWS + (row + rows_below) % UNIT];
    return sum;
  }
};

#if LAYER_KIND
#include "all_layers/few_bits_units.cuh"
#else
#include "all_layers/whole_units.cuh"
#endif

// The word of a lane's value and of that of its neighbour.
__device__ __forceinline__ uint32 pair_of_lanes(float value) {
  const float other = __shfl_xor_sync(FULL_WARP, value, 1);
  return Place().lane % 2 ? pack_pair<Element>(other, value) : pack_pair<Element>(value, other);
}

// A thread's element of the residual stream, behind a layer or halfway, in unit `unit` of it. By all lanes of a
// warp.
__device__ __forceinline__ void publish_stream(const Published& published, bool halfway, const Result& result,
                                               bool exists, int unit, float value, float weight) {
  const uint32 word = pair_of_lanes(FEW_BITS_LAYERS ? value : value * weight);
  const int at = (halfway ? Published::HALFWAY_AT : Published::STREAM_AT) + result.token * Published::STREAM_ROW +
                 unit * UNIT + result.row / 2 * 2;
  if (exists) publish_copies(published, at, word, result.row % 2);
  if (FEW_BITS_LAYERS) return;
  constexpr int UNITS = Published::UNITS_OF_SUM;
  static_assert(FEW_BITS_LAYERS || MOST_UNITS % UNITS == 0 && COPIES <= UNIT,
                "a lane for each copy, and a token a warp");
  constexpr int FROM = UNIT / 2 * (STREAM_UNITS == 1 ? 1 : STREAM_UNITS == 2 ? 2 : UNITS);  // of lanes
  const float squares = warp_sum<FROM, 1>(exists ? value * value : 0.0f);
  if (exists && result.unit % UNITS == 0 && result.row < COPIES) {
    const int sum = static_cast<int>(blockIdx.x) * Published::SUMS + result.unit / UNITS;
    publish(published.squares(result.row, halfway, result.token) + sum, __float_as_uint(squares));
  }
}

// What is added to a thread's queries, keys and values; that of the first group is asked for early.
struct QkvBias {
  const Element* rows = nullptr;  // of the thread block, or null
  float first = 0.0f;

  // Of what is made by `product`.
  __device__ __forceinline__ void load(const Layer& layer, const Share& share, int product, const Result& result) {
    if (layer.head_bias(product) == nullptr) return;
    rows = layer.head_bias(product) + share.first(product) * UNIT;
    if (result.unit < share.count(product)) first = of(result.unit * UNIT + result.row);
  }
  __device__ __forceinline__ float of(int row) const { return rows == nullptr ? 0.0f : to_float(rows[row]); }
};

// What happens to the results of each product.
template <int PRODUCT>
struct Finish {
  Shared& shared;
  const Share& share;
  const Published& published;
  const QkvBias& bias;
  int layer;
  Element* output;          // [TOKENS, HIDDEN], where the last product of the last layer goes; else null
  float& carried;           // the residual stream at the thread's result
  float weight;             // of the norm that comes behind, there
  const Published& source;  // of the input
  float epsilon;

#if !LAYER_KIND
  static constexpr bool IS_NORMED = PRODUCT == QKV || PRODUCT == UP;

  // When the input is there.
  __device__ __forceinline__ void ask() const {
    if (IS_NORMED) ask_for_squares(shared, source, PRODUCT == UP);
  }
  // Before the barrier in front of the first results.
  __device__ __forceinline__ void prepare() const {
    const Layer& of = shared.layers[layer];
    const float unit = PRODUCT == UP ? of.mlp_unit : of.attention_unit;
    if (IS_NORMED) store_factors(shared, factors(), source, PRODUCT == UP, unit, epsilon);
  }
  __device__ __forceinline__ float factor(const Result& result) const {
    return IS_NORMED ? factors()[result.token % TOKENS] : 1.0f;
  }
  __device__ __forceinline__ float (&factors() const)[TOKENS] { return shared.factors[layer % 2][PRODUCT == UP]; }
#else
  __device__ __forceinline__ float factor(const Result&) const { return 1.0f; }
#endif

  __device__ __forceinline__ void operator()(int first, const Result& result, bool exists) const {
    constexpr int RESULTS = UNIT / 2;  // of a unit of gates and values
    const int unit = first + result.unit, pair = result.row / 2 * 2;
    const bool odd = result.row % 2;
    const float factor = this->factor(result);
    float value = result.total() * factor;
    if constexpr (PRODUCT == QKV || PRODUCT == VALUES) {
      value += first == 0 || !exists ? bias.first : bias.of(unit * UNIT + result.row);
      const uint32 word = pair_of_lanes(value);
      const int place = result.token * QKV_ROWS + share.first_head_row(PRODUCT) + unit * UNIT + pair;
      if (exists && !odd) publish(reinterpret_cast<uint32*>(published.qkv() + place), word);
    } else if constexpr (PRODUCT == UP) {
      const uint32 word = pair_of_lanes(activate(rounded(value)) * rounded(result.total(RESULTS) * factor));
      wait(shared_address(&shared.marked), layer % 2);
      const int place = result.token * Order<DOWN>::PADDED + (share.first_up + unit) * RESULTS + pair;
      if (exists && result.row < RESULTS) publish_copies(published, Published::MIDDLE_AT + place, word, odd);
    } else {
      carried = rounded(rounded(value) + carried);
      if (output == nullptr) {
        publish_stream(published, PRODUCT == OUT, result, exists, share.first_stream + unit, carried, weight);
      } else {
        const uint32 word = pair_of_lanes(carried);
        const int place = result.token * HIDDEN + (share.first_stream + unit) * UNIT + pair;
        if (exists && !odd) *reinterpret_cast<uint32*>(output + place) = word;
      }
    }
  }
};
