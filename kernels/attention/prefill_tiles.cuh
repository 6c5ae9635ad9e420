// Tiles of K and V on their way from the paged cache to shared memory, and from there to the operands of `mma`.
//
// The cache layout of PagedAttention is kept, only the blocks of a tile are put side by side:
//
//   K  [head_size / 8][TILE_KEYS][8 dimensions]     V  [TILE_KEYS / 8][head_size + padding][8 tokens]
//
// A row is 16 bytes. The eight rows that `ldmatrix` wants at a time are neighbours in both, so it reads 128
// contiguous bytes: no bank conflict, no swizzle. V is stored transposed in the cache, which is what the second
// product wants, so nothing is transposed here. A warp copies 512 contiguous bytes of the cache at a time; the
// padding of V keeps the rows that such a piece scatters to in different banks.

#pragma once

#include "common/async_copy.cuh"
#include "common/mma.cuh"

constexpr int ROW_BYTES = 16;
constexpr int TILE_BLOCKS = TILE_KEYS / BLOCK_SIZE;
constexpr int BLOCK_ROWS = HEAD_SIZE * BLOCK_SIZE / 8;         // of one KV head, in the cache
constexpr int BLOCK_PIECES = ceil_div(BLOCK_ROWS, WARP_SIZE);  // what a warp copies at a time
constexpr int BLOCK_OCTETS = BLOCK_SIZE / 8;                   // groups of eight tokens
constexpr int VALUE_PADDING = BLOCK_OCTETS > 1 ? 8 / BLOCK_OCTETS : 0;
constexpr int KEY_CHUNK_BYTES = TILE_KEYS * ROW_BYTES;
constexpr int VALUE_OCTET_BYTES = (HEAD_SIZE + VALUE_PADDING) * ROW_BYTES;
constexpr int KEY_TILE_BYTES = HEAD_SIZE / 8 * KEY_CHUNK_BYTES;
constexpr int VALUE_TILE_BYTES = TILE_KEYS / 8 * VALUE_OCTET_BYTES;
constexpr int STAGE_BYTES = KEY_TILE_BYTES + VALUE_TILE_BYTES;

static_assert(TILE_KEYS % BLOCK_SIZE == 0 && TILE_KEYS % 16 == 0 && TILE_BLOCKS <= WARP_SIZE, "tile of keys");
static_assert(HEAD_SIZE % 16 == 0 && BLOCK_SIZE % 8 == 0 && 32 % BLOCK_SIZE == 0, "cache layout");

// 16 bytes, of which the first `bytes` come from global memory and the rest is zero.
__device__ __forceinline__ void copy_part_async(uint32 shared, const char* global, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
#else
  uint4 v = bytes > 0 ? load_16(global) : make_uint4(0, 0, 0, 0);
  uint32* words = reinterpret_cast<uint32*>(&v);
#pragma unroll
  for (int i = 0; i < 4; i++) {  // elements are two bytes
    const int left = bytes - 4 * i;
    words[i] = left >= 4 ? words[i] : left >= 2 ? words[i] & 0xffffu : 0u;
  }
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}

// One sequence's keys and values of one KV head; copies whole tiles, all warps of the thread block together.
struct PagedTiles {
  const char* key_cache;    // [num_blocks, num_kv_heads, head_size / 8, block_size, 8]
  const char* value_cache;  // [num_blocks, num_kv_heads, head_size, block_size]
  const int* block_table;   // [max_blocks_per_seq]
  int seq_len;
  uint32 block_bytes;  // between blocks
  uint32 offset;       // of this head and lane in a block
  int warp, lane;

  __device__ __forceinline__ PagedTiles(const Element* keys, const Element* values, const int* table, int length,
                                        int kv_head, int num_kv_heads)
      : key_cache(reinterpret_cast<const char*>(keys)),
        value_cache(reinterpret_cast<const char*>(values)),
        block_table(table),
        seq_len(length),
        block_bytes(num_kv_heads * BLOCK_ROWS * ROW_BYTES),
        warp(threadIdx.x / WARP_SIZE),
        lane(threadIdx.x % WARP_SIZE) {
    offset = (kv_head * BLOCK_ROWS + lane) * ROW_BYTES;
  }

  // Id of the tile's block `lane`; asked for a tile ahead, so that nobody waits for it. What the table holds past
  // the sequence's end is never used.
  __device__ __forceinline__ int load_block_id(int tile) const {
    const int block = tile * TILE_BLOCKS + lane;
    const bool there = tile >= 0 && lane < TILE_BLOCKS && block * BLOCK_SIZE < seq_len;
    return there ? __ldg(block_table + block) : 0;
  }

  __device__ __forceinline__ void copy(uint32 stage, int tile, int block_id) const {
    if ((tile + 1) * TILE_KEYS <= seq_len) {
      copy_tile<false>(stage, tile, block_id);
    } else {
      copy_tile<true>(stage, tile, block_id);
    }
  }

 private:
  // NOTE: in the sequence's last tile the slots past its end are made zero. What they hold may be NaN: a weight of
  // zero would not make it vanish.
  template <bool LAST>
  __device__ __forceinline__ void copy_tile(uint32 stage, int tile, int block_id) const {
    constexpr int PIECES = TILE_BLOCKS * BLOCK_PIECES;
    const uint32 key_to = stage + (lane / BLOCK_SIZE * TILE_KEYS + lane % BLOCK_SIZE) * ROW_BYTES;
    const uint32 value_to =
        stage + KEY_TILE_BYTES + lane % BLOCK_OCTETS * VALUE_OCTET_BYTES + lane / BLOCK_OCTETS * ROW_BYTES;
#pragma unroll
    for (int i = 0; i < ceil_div(PIECES, NUM_WARPS); i++) {
      const int index = i * NUM_WARPS + warp;
      if (PIECES % NUM_WARPS != 0 && index >= PIECES) break;
      const int block = index / BLOCK_PIECES, piece = index % BLOCK_PIECES;
      const uint32 id = __shfl_sync(FULL_WARP, block_id, block);
      const uint64 from = static_cast<uint64>(id) * block_bytes + (offset + piece * (WARP_SIZE * ROW_BYTES));
      if (BLOCK_ROWS % WARP_SIZE != 0 && piece * WARP_SIZE + lane >= BLOCK_ROWS) continue;
      const int left = LAST ? seq_len - tile * TILE_KEYS - block * BLOCK_SIZE : BLOCK_SIZE;  // tokens of the block
      copy_part_async(key_to + piece * (32 / BLOCK_SIZE) * KEY_CHUNK_BYTES + block * BLOCK_SIZE * ROW_BYTES,
                      key_cache + from, LAST && left <= 0 ? 0 : 16);
      const int octet_left = left - lane % BLOCK_OCTETS * 8;
      copy_part_async(value_to + block * BLOCK_OCTETS * VALUE_OCTET_BYTES + piece * (32 / BLOCK_OCTETS) * ROW_BYTES,
                      value_cache + from, LAST ? 2 * max(0, min(8, octet_left)) : 16);
    }
  }
};

// --- operands ---------------------------------------------------------------------------------------------------

// Where a lane points `ldmatrix` for the two B operands (16 keys) of Q K^T: chunks of dimensions first, then keys.
__device__ __forceinline__ uint32 key_operand_offset(int lane) {
  return lane / 8 % 2 * KEY_CHUNK_BYTES + (lane / 16 * 8 + lane % 8) * ROW_BYTES;
}

// The same for the two B operands (16 dimensions) of P V: octets of tokens first, then dimensions.
__device__ __forceinline__ uint32 value_operand_offset(int lane) {
  return lane / 8 % 2 * VALUE_OCTET_BYTES + (lane / 16 * 8 + lane % 8) * ROW_BYTES;
}
