// Numbers that the thread blocks of one running kernel hand to each other, without a barrier: whoever needs one
// reads it again and again until it is there.
//
// A number that is not there yet has all its bits set, a NaN that no arithmetic makes. So the data say by
// themselves that they have come, and no order of stores is needed. Writers store pairs of 16-bit elements, or
// floats: 32 bits, which arrive as a whole. Each number is written once in a launch; the one who writes it also
// marks its place in a second set of memory, which the launch before used and the next one will, as not there yet.

#pragma once

#include "common/common.cuh"

constexpr uint32 NOT_THERE = 0xffffffffu;
constexpr int MAX_LOOKS = 1 << 26;  // some ten seconds

// `WORDS` words of 32 bits, 1, 2 or 4, at an address that their size divides.
template <int WORDS>
__device__ __forceinline__ void look(uint32 (&words)[WORDS], const void* address) {
  const uint64 policy = keep_in_cache();
  if constexpr (WORDS == 4) {
    asm volatile("ld.relaxed.gpu.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(address), "l"(policy)
                 : "memory");
  } else if constexpr (WORDS == 2) {
    asm volatile("ld.relaxed.gpu.global.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(address), "l"(policy)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;"
                 : "=r"(words[0])
                 : "l"(address), "l"(policy)
                 : "memory");
  }
}

// NOT_THERE is higher than any number that has come: one comparison for all words.
template <int WORDS>
__device__ __forceinline__ uint32 highest_of(const uint32 (&words)[WORDS]) {
  if constexpr (WORDS == 4) return max(max(words[0], words[1]), max(words[2], words[3]));
  uint32 highest = words[0];
#pragma unroll
  for (int w = 1; w < WORDS; w++) highest = max(highest, words[w]);
  return highest;
}

// Calls `look()`, which returns whether the lane misses something, until no lane of the warp does. By all of them,
// which stay together: lanes that leave a loop one by one take half a microsecond to meet again.
template <typename Look>
__device__ __forceinline__ void look_until_there(Look look) {
#pragma unroll 1
  for (int looks = 0;; looks++) {
    if (!__any_sync(FULL_WARP, look())) return;
    if (looks == MAX_LOOKS) __trap();  // a thread block is missing: an error, instead of a GPU that never answers
  }
}

// The same behind a first look of another kind, which says what the lane `misses`.
template <typename Look>
__device__ __forceinline__ void look_again_until_there(bool misses, Look look) {
  for (int looks = 0; __any_sync(FULL_WARP, misses); looks++) {
    if (looks == MAX_LOOKS) __trap();
    misses = look();
  }
}

// Words of `ROWS` rows that lie `stride` elements apart, once all of the warp's are there.
template <int ROWS, int WORDS>
__device__ __forceinline__ void await_words(uint32 (&words)[ROWS][WORDS], const Element* first, int stride) {
  look_until_there([&] {
    uint32 highest = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) look<WORDS>(words[r], first + r * stride);
#pragma unroll
    for (int r = 0; r < ROWS; r++) highest = max(highest, highest_of(words[r]));
    return highest == NOT_THERE;
  });
}

__device__ __forceinline__ void publish(uint32* place, uint32 value) {
  asm volatile("st.relaxed.gpu.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(place), "r"(value),
               "l"(keep_in_cache())
               : "memory");
}

__device__ __forceinline__ void publish(uint4* place, uint4 value) {
  asm volatile("st.relaxed.gpu.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(place), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w), "l"(keep_in_cache())
               : "memory");
}

__device__ __forceinline__ void publish(uint2* place, uint2 value) {
  asm volatile("st.relaxed.gpu.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(place), "r"(value.x),
               "r"(value.y), "l"(keep_in_cache())
               : "memory");
}

// Of a place that nobody looks at in this launch.
__device__ __forceinline__ void mark_not_there(uint32* place) { publish(place, NOT_THERE); }
