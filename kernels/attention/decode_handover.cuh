// Parts of a sequence in global memory, on their way to the thread block that merges them. A part says by itself
// that it is there (common/published.cuh), so nobody waits for stores to have arrived. Who merges is settled when
// thread blocks begin: the last one to do so, since all that it is going to wait for run by then.
//
// The one that merges reads all parts of all rows and marks their places, which takes too long for many parts.

#pragma once

#include "attention/decode_merge.cuh"
#include "common/published.cuh"

struct Handover {
  uint4* sums;    // [num_seqs, num_heads, max_parts, ROW_PIECES], not there before and after
  uint2* states;  // the same of m and l
  int max_parts;

  // Piece `index` of a row of a thread block's column.
  __device__ __forceinline__ int64 place(int slot, int part, int index) const {
    return (static_cast<int64>(slot) * max_parts + part) * ROW_PIECES + index;
  }

  __device__ __forceinline__ void store(int slot, int part, int index, const Piece& piece) const {
    const int64 at = place(slot, part, index);
    publish(sums + at, make_uint4(__float_as_uint(piece.sum.x), __float_as_uint(piece.sum.y),
                                  __float_as_uint(piece.sum.z), __float_as_uint(piece.sum.w)));
    publish(states + at, make_uint2(__float_as_uint(piece.state.m), __float_as_uint(piece.state.l)));
  }

  // By all lanes of a warp: every `step`-th part from `first` on, below `end`. Their places are free afterwards.
  template <int PARTS>
  __device__ __forceinline__ void take(Piece (&taken)[PARTS], int slot, int first, int step, int end,
                                       int index) const {
    uint32 sum[PARTS][4], state[PARTS][2], missing = (1u << PARTS) - 1;
#pragma unroll 1
    for (int looks = 0; missing != 0; looks++) {
#pragma unroll
      for (int k = 0; k < PARTS; k++) {
        if ((missing >> k & 1) == 0 || first + k * step >= end) continue;
        const int64 at = place(slot, first + k * step, index);
        look<4>(sum[k], sums + at);
        look<2>(state[k], states + at);
      }
#pragma unroll
      for (int k = 0; k < PARTS; k++) {
        const bool misses = first + k * step < end && max(highest_of(sum[k]), highest_of(state[k])) == NOT_THERE;
        if (!__any_sync(FULL_WARP, misses)) missing &= ~(1u << k);
      }
      if (looks == MAX_LOOKS) __trap();
    }
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
      if (first + k * step >= end) continue;
      const int64 at = place(slot, first + k * step, index);
      publish(sums + at, make_uint4(NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE));
      publish(states + at, make_uint2(NOT_THERE, NOT_THERE));
      taken[k].sum = make_float4(__uint_as_float(sum[k][0]), __uint_as_float(sum[k][1]), __uint_as_float(sum[k][2]),
                                 __uint_as_float(sum[k][3]));
      taken[k].state.m = __uint_as_float(state[k][0]);
      taken[k].state.l = __uint_as_float(state[k][1]);
    }
  }
};
