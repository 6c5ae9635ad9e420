// Which tokens stay: the most likely ones up to a number of them (top-k) or up to a share of their mass (top-p),
// without sorting. A filter is a threshold among the keys; it is found digit by digit, most significant first, with
// a histogram of the keys that share the digits known so far (radix selection, Alabi et al. 2012), of masses for
// top-p.

#pragma once

#include "common/cluster.cuh"
#include "sampling/row_slice.cuh"
#include "sampling/token_weight.cuh"

constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int DIGIT_BITS = 8;
constexpr int NUM_BINS = 1 << DIGIT_BITS;
constexpr int NUM_DIGITS = ceil_div(KEY_BITS, DIGIT_BITS);
constexpr int PADDING_BITS =
    NUM_DIGITS * DIGIT_BITS - KEY_BITS;  // zeros after the key that make the last digit whole
constexpr int HALF_BITS = 15;
constexpr int COPIES = CLUSTER >= 4 ? 1 : 4;              // of a histogram
constexpr int TURN_TOKENS = (1 << (32 - HALF_BITS)) - 1;  // in a copy at a time: for so many the sum of a half fits
constexpr int TURN_PIECES = TURN_TOKENS / (NUM_WARPS / COPIES * PIECE);  // of a warp at a time
static_assert(NUM_THREADS >= NUM_BINS, "a thread for each bin");

// Kept are the keys above `key`, and the first `ties` tokens that have it.
struct Kept {
  uint32 key, ties;
};

struct Histogram {
  uint32 high[COPIES][NUM_BINS], low[COPIES][NUM_BINS];  // a mass in two halves; a number of tokens in `low`
};

__device__ __forceinline__ void clear(Histogram& histogram) {
  uint32* words = &histogram.high[0][0];
  for (int i = threadIdx.x; i < sizeof(Histogram) / sizeof(uint32); i += NUM_THREADS) words[i] = 0;
}

struct FilterShared {
  Histogram histograms[2];  // one is read by the cluster while the other one is filled
  uint64 merged[NUM_BINS];
  uint64 needed;         // amount that is to be kept
  uint64 above, amount;  // amount above the chosen bin, and in it
  int bin;               // -1: everything is kept
};

// Inclusive sum over the lanes up to this one.
__device__ __forceinline__ uint64 scan_warp(uint64 x) {
#pragma unroll
  for (int step = 1; step < WARP_SIZE; step *= 2) {
    const uint64 below = __shfl_up_sync(FULL_WARP, x, step);
    if (threadIdx.x % WARP_SIZE >= step) x += below;
  }
  return x;
}

struct Selection {
  FilterShared& shared;
  const RowSlice& slice;
  const TokenKeys& keys;
  const bool by_mass;  // otherwise by the number of tokens

  __device__ __forceinline__ uint32 amount_of(uint32 key) const { return by_mass ? weight_of(key) : 1; }

  // How many tokens, or which mass, each digit has among the keys above `floor` with this prefix before the digit.
  __device__ __forceinline__ void count(const RowSlice& part, Histogram& histogram, uint32 prefix, int shift,
                                        uint32 floor) const {
    const int copy = threadIdx.x / WARP_SIZE % COPIES;
    part.for_each([&](int, const float (&logits)[PIECE]) {
      uint32 members[PIECE], any = 0;  // keys that count, otherwise 0
#pragma unroll
      for (int j = 0; j < PIECE; j++) {
        const uint32 key = keys.of(logits[j]);
        members[j] = key > floor && key << PADDING_BITS >> (shift + DIGIT_BITS) == prefix ? key : 0;
        any |= members[j];
      }
      if (any == 0) return;
      uint32 amounts[PIECE];
#pragma unroll
      for (int j = 0; j < PIECE; j++) amounts[j] = by_mass ? weight_of(members[j]) : 1;
#pragma unroll
      for (int j = 0; j < PIECE; j++) {
        const uint32 bin = members[j] << PADDING_BITS >> shift & (NUM_BINS - 1);
        if (members[j] == 0) continue;
        atomicAdd(&histogram.low[copy][bin], amounts[j] & ((1u << HALF_BITS) - 1));
        if (by_mass) atomicAdd(&histogram.high[copy][bin], amounts[j] >> HALF_BITS);
      }
    });
  }

  // Over all thread blocks of the cluster; all but the first of a digit are added to what is there.
  __device__ __forceinline__ void merge(const Histogram& histogram, bool is_first) const {
    const int bin = threadIdx.x;
    if (bin >= NUM_BINS) return;
    uint64 amount = is_first ? 0 : shared.merged[bin];
#pragma unroll
    for (int rank = 0; rank < CLUSTER; rank++) {
#pragma unroll
      for (int copy = 0; copy < COPIES; copy++) {
        amount += static_cast<uint64>(load_from(&histogram.high[copy][bin], rank)) << HALF_BITS;
        amount += load_from(&histogram.low[copy][bin], rank);
      }
    }
    shared.merged[bin] = amount;
  }

  // The bin in which the amount from the top reaches what `needed_of(amount of all bins)` asks for.
  template <typename Needed>
  __device__ __forceinline__ void choose(Needed needed_of) const {
    constexpr int EACH = NUM_BINS / WARP_SIZE;
    const int lane = threadIdx.x % WARP_SIZE, top = NUM_BINS - 1 - lane * EACH;
    uint64 amounts[EACH], own = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) own += amounts[i] = shared.merged[top - i];
    const uint64 through = scan_warp(own);
    uint64 above = through - own;
    const uint64 total = __shfl_sync(FULL_WARP, through, WARP_SIZE - 1);
    const uint64 needed = needed_of(total);
    if (lane == 0) shared.needed = needed;
    if (needed > total) {
      if (lane == 0) shared.bin = -1, shared.above = total;
    } else if (above < needed && needed <= through) {
      int i = 0;
#pragma unroll
      for (int j = 0; j < EACH - 1; j++) {
        if (i == j && above + amounts[j] < needed) above += amounts[j], i = j + 1;
      }
      shared.bin = top - i;
      shared.above = above;
      shared.amount = shared.merged[top - i];
    }
  }

  // The filter that keeps the first `needed` tokens, or the first ones that have that mass, of those in `kept`.
  // `turn`: the histogram that is clear.
  template <typename Needed>
  __device__ __forceinline__ Kept narrow(Kept kept, int& turn, Needed needed_of) const {
    uint32 prefix = 0;
    uint64 needed = 0;
#pragma unroll 1
    for (int shift = (NUM_DIGITS - 1) * DIGIT_BITS;; shift -= DIGIT_BITS) {
      const bool first = shift == (NUM_DIGITS - 1) * DIGIT_BITS;
      // All thread blocks of the cluster take as many turns: one, but for very large vocabularies.
#pragma unroll 1
      for (int done = 0; done < slice.most; done += TURN_PIECES) {
        Histogram& histogram = shared.histograms[turn];
        count(slice.part(done, TURN_PIECES), histogram, prefix, shift, kept.key);
        sync_cluster();
        clear(shared.histograms[turn ^= 1]);
        merge(histogram, done == 0);
        __syncthreads();
      }
      if (threadIdx.x < WARP_SIZE) choose([&](uint64 total) { return first ? needed_of(total) : needed; });
      __syncthreads();
      needed = shared.needed - shared.above;
      if (shared.bin < 0) {
        if (kept.ties > 0) kept.ties = min(kept.ties, num_tokens(needed, amount_of(kept.key)));
        return kept;
      }
      prefix = prefix << DIGIT_BITS | shared.bin;
      if (shared.amount == needed) {  // all that have this prefix
        const uint32 smallest = prefix << shift >> PADDING_BITS;
        return {max(kept.key, smallest > 0 ? smallest - 1 : 0), 0};
      }
      if (shift == 0) {
        const uint32 key = prefix >> PADDING_BITS;
        return {key, num_tokens(needed, amount_of(key))};
      }
    }
  }

  // It takes so many tokens of this amount each.
  static __device__ __forceinline__ uint32 num_tokens(uint64 amount, uint32 each) {
    return each == 1 ? static_cast<uint32>(amount) : static_cast<uint32>((amount - 1) / each) + 1;
  }
};
