// A lane's input of its run in a slot, in the form in which it is multiplied: digits where weights are integers,
// otherwise elements, which weights become as well. Included by few_bits_inputs.cuh.

#pragma once

// Both halves of a unit's rows times a lane's input; `of(i)` is as d[i] of mma.cuh.
template <int PRODUCT, bool = Order<PRODUCT>::INTEGERS>
struct RunProducts : DigitProducts<Order<PRODUCT>::KIND> {};

template <int PRODUCT>
struct RunProducts<PRODUCT, false> {
  using Raw = RawWeights<Element, Order<PRODUCT>::KIND>;
  static_assert(!Raw::SHIFTED, "floats have no zero of their own");
  float sums[4] = {};

  __device__ __forceinline__ void add(uint4 upper_row, uint4 lower_row,
                                      const uint4 (&pieces)[Order<PRODUCT>::RUN_PIECES]) {
    const uint2 upper[2] = {make_uint2(upper_row.x, upper_row.y), make_uint2(upper_row.z, upper_row.w)};
    const uint2 lower[2] = {make_uint2(lower_row.x, lower_row.y), make_uint2(lower_row.z, lower_row.w)};
#pragma unroll
    for (int i = 0; i < 2; i++) multiply_step(sums, Raw::piece(upper[i]), Raw::piece(lower[i]), pieces[i]);
  }
  __device__ __forceinline__ float of(int i) const { return sums[i]; }
};

template <int PRODUCT, bool = Order<PRODUCT>::INTEGERS>
struct SlotInput {
  using Of = Order<PRODUCT>;
  uint2 operands[Of::RUN_PIECES];  // digits; of an even g the upper ones
  DigitWorth worth;                // of run q

  __device__ __forceinline__ void take(const uint4* pieces, const Place& place) {
    Largest largest;
#pragma unroll
    for (int i = 0; i < Of::RUN_PIECES; i++) largest.add(pieces[i]);
    const DigitScale scale(largest.of_lanes<2>());
#pragma unroll
    for (int i = 0; i < Of::RUN_PIECES; i++) {
      operands[i] = digits_of<Of::KIND>(pieces[i], scale.factor, place.g % 2 == 0);
    }
    worth = worth_of<Of::KIND>(__shfl_sync(FULL_WARP, scale.unit, 2 * 4 * place.q), operands);
  }
  __device__ __forceinline__ void load_digits(const WarpInput& from, int slot, const Place& place) {
#pragma unroll
    for (int i = 0; i < Of::RUN_PIECES; i++) {
      const uint4* piece =
          &from.pieces[from.at<PRODUCT>((slot * WARP_RUNS + place.g / 2) * Of::RUN_PIECES + i, place.q)];
      operands[i] = reinterpret_cast<const uint2*>(piece)[place.g % 2];
    }
  }
  __device__ __forceinline__ void load(const WarpInput& from, int slot, const Place& place) {
    load_digits(from, slot, place);
    const DigitWorth& there = from.worth[slot * WARP_RUNS + place.q];
    if constexpr (Of::GROUPED) {
      worth = there;
    } else {
      worth.unit = there.unit;
    }
  }
  // What a row's sums of both columns come to.
  __device__ __forceinline__ float product(int upper, int lower) const {
    return static_cast<float>(upper * 256 + lower - worth.excess) * worth.unit;
  }
};

template <int PRODUCT>
struct SlotInput<PRODUCT, false> {
  using Of = Order<PRODUCT>;
  uint4 operands[Of::RUN_PIECES];

  __device__ __forceinline__ void take(const uint4* pieces, const Place&) {
#pragma unroll
    for (int i = 0; i < Of::RUN_PIECES; i++) operands[i] = pieces[i];
  }
  __device__ __forceinline__ void load(const WarpInput& from, int slot, const Place& place) {
#pragma unroll
    for (int i = 0; i < Of::RUN_PIECES; i++) {
      operands[i] = from.pieces[from.at<PRODUCT>((slot * WARP_RUNS + place.g / 2) * Of::RUN_PIECES + i, place.q)];
    }
  }
  __device__ __forceinline__ float product(float sum, float) const { return sum; }
};

// Of a middle in shared memory, what digits are worth, when their units are there.
template <int PRODUCT>
__device__ __forceinline__ void finish_worth(WarpInput& input, const Place& place) {
  using Of = Order<PRODUCT>;
  if constexpr (Of::GROUPED) {
#pragma unroll 1
    for (int slot = 0; slot < Of::SLOTS_OF_ROW; slot++) {
      SlotInput<PRODUCT> own;
      own.load_digits(input, slot, place);
      DigitWorth& worth = input.worth[slot * WARP_RUNS + place.q];
      const DigitWorth found = worth_of<Of::KIND>(worth.unit, own.operands);
      __syncwarp();
      if (place.g == 0) worth = found;
    }
    __syncwarp();
  }
}
