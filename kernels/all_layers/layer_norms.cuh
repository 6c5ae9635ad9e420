// The norms of layers with weights of 16 bits: RMS norms (Zhang and Sennrich 2019, arXiv 1910.07467) in two halves.
// norm(x) is x times the weight of the norm over the size of x, and a product is linear. Who makes the residual
// stream publishes it weighed, with a sum of squares; who multiplies it divides the sums when they are there. So
// nobody norms whole rows, of which every thread block would have all. Included by layer_inputs.cuh.
//
// Weighed rows are in a unit, a power of two over which no weight of the norm is more than one: none of them is
// further from zero than 16 bits can say if the stream is not.

#pragma once

static_assert(NORM == RMS_NORM || NORM == EXACT_RMS_NORM || NORM == OFFSET_RMS_NORM, "an RMS norm");

// What an element of the stream is multiplied by before it is published.
__device__ __forceinline__ float weight_of_norm(const Element* norm, float unit, int column) {
  const float weight = to_float(norm[column]), inverse = __uint_as_float((254u << 23) - __float_as_uint(unit));
  return gain<NORM>(weight) * inverse;
}

// The squares of a norm that is due, on their way to shared memory, where the warp that has their token looks at
// them: registers are for weights.
constexpr int SQUARE_LOADS = ceil_div(Published::ROW_SUMS / 4, WARP_SIZE);  // of a lane
static_assert(TOKENS <= NUM_WARPS, "a warp for each token");

// Asked for, and nobody waits.
__device__ __forceinline__ void ask_for_squares(Shared& shared, const Published& from, bool halfway) {
  const Place place;
  if (place.warp >= TOKENS) return;
  const uint32* squares = from.squares(blockIdx.x % COPIES, halfway, place.warp);
#pragma unroll
  for (int i = 0; i < SQUARE_LOADS; i++) {
    const int at = (i * WARP_SIZE + place.lane) * 4;
    if (at < Published::ROW_SUMS) copy_16_async(&shared.squares[place.warp][at], squares + at);
  }
  commit_copies();
}

// What each token's sums are to be multiplied by, for all behind the next barrier.
__device__ __forceinline__ void store_factors(Shared& shared, float (&factors)[TOKENS], const Published& from,
                                              bool halfway, float unit, float epsilon) {
  const Place place;
  if (place.warp >= TOKENS) return;
  wait_copies<0>();
  uint32 words[SQUARE_LOADS][4] = {};
  const auto each = [&](auto load) {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < SQUARE_LOADS; i++) {
      const int at = (i * WARP_SIZE + place.lane) * 4;
      if (at < Published::ROW_SUMS) load(words[i], at);
      highest = max(highest, highest_of(words[i]));
    }
    return highest == NOT_THERE;
  };
  const bool misses = each([&](uint32(&to)[4], int at) {
    const uint4 there = load_16(&shared.squares[place.warp][at]);
    to[0] = there.x, to[1] = there.y, to[2] = there.z, to[3] = there.w;
  });
  look_again_until_there(misses, [&] {
    const uint32* squares = from.squares(blockIdx.x % COPIES, halfway, place.warp);
    return each([&](uint32(&to)[4], int at) { look<4>(to, squares + at); });
  });
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < SQUARE_LOADS; i++) {
#pragma unroll
    for (int w = 0; w < 4; w++) sum += __uint_as_float(words[i][w]);
  }
  sum = warp_sum(sum);
  if (place.lane == 0) factors[place.warp] = rsqrtf(sum / HIDDEN + epsilon) * unit;
}
