// Query rows and paged keys and values on their way into shared memory, placed so that warpgroup products can read
// them:
//
//   queries  [HEAD_SIZE / 8][TILE_ROWS][8]             core matrices, summed over the head
//   keys     [HEAD_SIZE / 8][TILE_KEYS][8]             core matrices, summed over the head
//   values   [TILE_BLOCKS][HEAD_SIZE][BLOCK_SIZE]      rows of a block's keys, swizzled, summed over the keys
//
// A block's values keep the order that they have in the cache, and of its keys those that are neighbours stay so: a
// sector of global memory split over two places of shared memory would be read twice. Each 16-byte piece goes by a
// cp.async.

#pragma once

#include "common/async_copy.cuh"
#include "common/common.cuh"
#include "attention/wgmma_items.cuh"

constexpr int PIECE = 16;  // bytes
constexpr int PIECE_ELEMENTS = PIECE / sizeof(Element);
constexpr int CACHE_TILE = HEAD_SIZE * BLOCK_SIZE;  // elements of one (block, head)
constexpr int TILE_BLOCKS = TILE_KEYS / BLOCK_SIZE;

constexpr int QUERY_CHUNK =
    TILE_ROWS * PIECE + PIECE;  // one more, so that the pieces of a row are in different banks
constexpr int KEY_CHUNK = TILE_KEYS * PIECE;
constexpr int VALUE_ROW = BLOCK_SIZE * sizeof(Element);
constexpr int BLOCK_BYTES = HEAD_SIZE * VALUE_ROW;

constexpr int QUERY_BYTES = HEAD_SIZE / 8 * QUERY_CHUNK;
constexpr int KEY_BYTES = HEAD_SIZE / 8 * KEY_CHUNK;
constexpr int VALUE_BYTES = TILE_BLOCKS * BLOCK_BYTES;

static_assert(TILE_BLOCKS <= WARP_SIZE, "a lane holds one entry of the block table");

// The first `bytes` of 16, and zeros.
__device__ __forceinline__ void copy_piece(uint32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// A tile's entries of the block table, entry i in lane i; 0 for blocks that start at `end` or later.
__device__ __forceinline__ int tile_entries(const int* block_table, int tile, int end) {
  const int lane = threadIdx.x % WARP_SIZE;
  const int block = tile * TILE_BLOCKS + lane;
  return lane < TILE_BLOCKS && block * BLOCK_SIZE < end ? block_table[block] : 0;
}

// The `NUM_WARPS` warps share a tile's blocks; each block's pieces are read in the order in which the cache holds
// them.
template <int NUM_WARPS>
struct TileCopy {
  const Element* keys;  // of the KV head, in block 0
  const Element* values;
  int64 block_stride;  // elements
  int warp;

  static constexpr int PIECES = CACHE_TILE / PIECE_ELEMENTS;  // of one (block, head)

  // Keys at `end` or later are masked whatever they are, so their places keep what they hold.
  __device__ __forceinline__ void copy_keys(uint32 to, int entries, int tile, int end) const {
    const int lane = threadIdx.x % WARP_SIZE;
    const uint32 mine = to + lane / BLOCK_SIZE * KEY_CHUNK + lane % BLOCK_SIZE * PIECE;
    constexpr int STEP = WARP_SIZE / BLOCK_SIZE * KEY_CHUNK;
#pragma unroll 1
    for (int block = warp; block < TILE_BLOCKS; block += NUM_WARPS) {
      const int64 id = __shfl_sync(FULL_WARP, entries, block);
      if (tile * TILE_KEYS + block * BLOCK_SIZE >= end) break;
      const Element* from = keys + id * block_stride + lane * PIECE_ELEMENTS;
      const uint32 there = mine + block * BLOCK_SIZE * PIECE;
#pragma unroll
      for (int i = 0; i < ceil_div(PIECES, WARP_SIZE); i++) {
        if (PIECES % WARP_SIZE == 0 || i * WARP_SIZE + lane < PIECES)
          copy_piece(there + i * STEP, from + i * WARP_SIZE * PIECE_ELEMENTS, PIECE);
      }
    }
  }

  // Values at `end` or later become zeros: a weight of zero does not undo what a slot that was never written may
  // hold.
  __device__ __forceinline__ void copy_values(uint32 to, int entries, int tile, int end) const {
    constexpr int ROW_PIECES = BLOCK_SIZE / 8;
    const int lane = threadIdx.x % WARP_SIZE;
    const uint32 mine = to + swizzled(lane * PIECE, VALUE_ROW);
#pragma unroll 1
    for (int block = warp; block < TILE_BLOCKS; block += NUM_WARPS) {
      const int64 id = __shfl_sync(FULL_WARP, entries, block);
      const int first_key = tile * TILE_KEYS + block * BLOCK_SIZE + lane % ROW_PIECES * 8;
      const int bytes = min(max(end - first_key, 0), 8) * static_cast<int>(sizeof(Element));
      const Element* from = values + id * block_stride + lane * PIECE_ELEMENTS;
      const uint32 there = mine + block * BLOCK_BYTES;
#pragma unroll
      for (int i = 0; i < ceil_div(PIECES, WARP_SIZE); i++) {
        if (PIECES % WARP_SIZE == 0 || i * WARP_SIZE + lane < PIECES)
          copy_piece(there + i * WARP_SIZE * PIECE, from + i * WARP_SIZE * PIECE_ELEMENTS, bytes);
      }
    }
  }
};

// The item's rows of `query`, [num_tokens, num_heads, HEAD_SIZE] with strides in elements; zeros past its last row.
template <int NUM_THREADS>
__device__ __forceinline__ void copy_queries(uint32 to, const Element* query, int64 token_stride, int64 head_stride,
                                             const Item& item, int thread) {
  constexpr int ROW_PIECES = HEAD_SIZE / PIECE_ELEMENTS;
  for (int i = thread; i < TILE_ROWS * ROW_PIECES; i += NUM_THREADS) {
    const int row = i / ROW_PIECES, piece = i % ROW_PIECES;
    const int place = item.first_row + row;
    const bool real = place < item.num_rows;
    const int64 token = real ? item.first_token + place / GROUP_SIZE : 0;
    const int64 head = item.kv_head * GROUP_SIZE + place % GROUP_SIZE;
    copy_piece(to + piece * QUERY_CHUNK + row * PIECE,
               query + token * token_stride + head * head_stride + piece * PIECE_ELEMENTS, real ? PIECE : 0);
  }
}
