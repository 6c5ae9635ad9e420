// A head of a new token on its way into a paged cache of one byte an element (byte_elements.cuh): a warp has it,
// since its scale follows from all of it, lane l the elements l, l + 32, ... Neighbouring lanes write neighbouring
// bytes of a key; those of a value lie BLOCK_SIZE bytes apart, and neighbouring tokens fill the gaps.

#pragma once

#include "common/byte_elements.cuh"

constexpr int BYTE_WARPS = 4;  // of a thread block of the kernels that do nothing else
constexpr int LANE_ELEMENTS = ceil_div(HEAD_SIZE, WARP_SIZE);
static_assert(CACHE_KIND == 1 || CACHE_KIND == 2, "a cache of bytes");
static_assert(sizeof(Element) == 2 && HEAD_SIZE % 16 == 0, "heads of whole rows, of 16 bits an element");

// A head of a token, shared out among the lanes of a warp; zeros behind its end.
struct Head {
  float x[LANE_ELEMENTS];

  // `use(element, x)` for every element of this lane.
  template <typename Use>
  __device__ __forceinline__ void for_each(Use use) {
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) {
      const int element = threadIdx.x % WARP_SIZE + i * WARP_SIZE;
      if (HEAD_SIZE % WARP_SIZE == 0 || element < HEAD_SIZE) use(element, x[i]);
    }
  }

  // What the kernel before has written: past L1, which may hold what was there before.
  __device__ __forceinline__ void load(const Element* from) {
#pragma unroll
    for (int i = 0; i < LANE_ELEMENTS; i++) x[i] = 0.0f;
    for_each([&](int element, float& x) {
      const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(from) + element);
      x = to_float(*reinterpret_cast<const Element*>(&bits));
    });
  }

  __device__ __forceinline__ void store(Element* to) {
    for_each([&](int element, float& x) { to[element] = from_float<Element>(x); });
  }

  // As elements, a byte each, and their scale, in a slot of `head` and of `scales`, those of the KV head in a
  // block.
  __device__ __forceinline__ void keep(Cached* head, Cached* scales, int slot, bool is_key) {
    float largest = 0.0f;
    for_each([&](int, float& x) { largest = fmaxf(largest, fabsf(x)); });
    const Scale scale = scale_for(warp_max(largest));
    const float inverse = __fdiv_rn(1.0f, scale_of(scale));
    for_each([&](int element, float& x) {
      const int at = is_key ? (element / CACHED_ROW * BLOCK_SIZE + slot) * CACHED_ROW + element % CACHED_ROW
                            : element * BLOCK_SIZE + slot;
      head[at] = to_byte(__fmul_rn(x, inverse));
    });
    if (threadIdx.x % WARP_SIZE == 0) reinterpret_cast<Scale*>(scales)[slot] = scale;
  }
};

// The same by page and KV head.
__device__ __forceinline__ void keep_in_page(Head& head, Cached* page, int num_kv_heads, int kv_head, int slot,
                                             bool is_key) {
  Cached* scales = page + num_kv_heads * HEAD_SIZE * BLOCK_SIZE;
  head.keep(page + kv_head * HEAD_SIZE * BLOCK_SIZE,
            scales + kv_head * BLOCK_SIZE * static_cast<int>(sizeof(Scale)), slot, is_key);
}
