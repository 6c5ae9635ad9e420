// Where the rows of the product that makes queries, keys and values go: queries to the next kernel, keys and values
// to their slots of the paged cache (PagedAttention, Kwon et al. 2023, arXiv 2309.06180), those of query and key
// heads turned by their position (Su et al. 2021, arXiv 2104.09864), all of a head or its first elements. Who made
// them is not known here.

#pragma once

#include "common/common.cuh"

#ifndef TURNED
#define TURNED HEAD_SIZE  // elements of a head
#endif

constexpr int HALF_HEAD = HEAD_SIZE / 2, HALF_TURNED = TURNED / 2;

// The rows of a head in pairs, RUN of which are made together: turned ones lie half of what is turned apart, all
// others behind them are pairs of two runs that follow each other.
template <int RUN>
struct RowPairs {
  static_assert(HALF_TURNED % RUN == 0 && HALF_HEAD % RUN == 0, "whole runs are turned");

  static __device__ __forceinline__ bool are_turned(int pair) { return TURNED == HEAD_SIZE || pair < HALF_TURNED; }
  static __device__ __forceinline__ int first(int pair) { return are_turned(pair) ? pair : 2 * pair - pair % RUN; }
  static __device__ __forceinline__ int below(int pair) { return are_turned(pair) ? HALF_TURNED : RUN; }
};

// A token's slot, looked up before the kernel before has ended: positions and blocks change between steps only.
struct TokenSlot {
  int position;  // below 0: the token is padding
  int block;
};

__device__ __forceinline__ TokenSlot slot_of(const int* positions, const int* block_tables, int token,
                                             int max_blocks_per_seq) {
  const int position = positions[token];
  return {position,
          position < 0 ? 0 : block_tables[static_cast<int64>(token) * max_blocks_per_seq + position / BLOCK_SIZE]};
}

// Two elements of a pair, turned by an angle of which `turn` is cosine and sine.
__device__ __forceinline__ void turn_pair(float (&values)[2], float2 turn) {
  const float x = to_float(from_float<Element>(values[0])), y = to_float(from_float<Element>(values[1]));
  values[0] = x * turn.x - y * turn.y;
  values[1] = y * turn.x + x * turn.y;
}

struct HeadPlaces {
  Element* query;        // [num_tokens, num_heads, HEAD_SIZE]
  Element* key_cache;    // [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8]
  Element* value_cache;  // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
  int num_heads, num_kv_heads;
  int64 key_block_stride, value_block_stride;  // elements

  // `head` counts query heads, then key heads, then value heads.
  __device__ __forceinline__ bool is_turned(int head) const { return head < num_heads + num_kv_heads; }

  // Keys and values of padding go nowhere.
  __device__ __forceinline__ void put(int token, TokenSlot at, int head, int dim, float value) const {
    const Element element = from_float<Element>(value);
    if (head < num_heads) {
      query[(static_cast<int64>(token) * num_heads + head) * HEAD_SIZE + dim] = element;
      return;
    }
    if (at.position < 0) return;
    const int slot = at.position % BLOCK_SIZE;
    if (is_turned(head)) {
      const int kv_head = head - num_heads;
      key_cache[at.block * key_block_stride + (kv_head * (HEAD_SIZE / 8) + dim / 8) * BLOCK_SIZE * 8 + slot * 8 +
                dim % 8] = element;
    } else {
      const int kv_head = head - num_heads - num_kv_heads;
      value_cache[at.block * value_block_stride + (kv_head * HEAD_SIZE + dim) * BLOCK_SIZE + slot] = element;
    }
  }
};
