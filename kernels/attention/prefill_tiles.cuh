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
//
// A cache of bytes (byte_elements.cuh) becomes 16 bits on the way, each element times its scale and rounded once; a
// lane waits for what it reads then, where otherwise copies go on by themselves.

#pragma once

#include "common/async_copy.cuh"
#include "common/byte_elements.cuh"
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

#if CACHE_KIND
constexpr int PAGE_HEAD_BYTES = HEAD_SIZE * BLOCK_SIZE;                          // of a KV head
constexpr int SCALES_HEAD_BYTES = BLOCK_SIZE * static_cast<int>(sizeof(Scale));  // behind all of those

constexpr int BYTE_PIECES = 4;  // that a lane reads before it writes them

__device__ __forceinline__ float low_half(uint32 pair) {
  const unsigned short bits = pair & 0xffffu;
  return to_float(*reinterpret_cast<const Element*>(&bits));
}

// Four bytes in a row times a scale each, as 16-bit elements.
__device__ __forceinline__ uint2 scaled_four(uint32 bytes, float4 scales) {
  uint32 even, odd;
  widen_four<Element>(bytes, even, odd);
  return make_uint2(pack_pair<Element>(low_half(even) * scales.x, low_half(odd) * scales.y),
                    pack_pair<Element>(low_half(even >> 16) * scales.z, low_half(odd >> 16) * scales.w));
}

__device__ __forceinline__ void store_shared(uint32 to, uint2 low, uint2 high) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(low.x), "r"(low.y), "r"(high.x),
               "r"(high.y)
               : "memory");
}

// Eight dimensions of a key and a dimension of eight values, with their scales, on their way through the registers.
struct BytePiece {
  uint2 key = {}, value = {};
  uint4 value_scales = {};
  unsigned short key_scale = 0;

  __device__ __forceinline__ void load_key(const char* bytes, const char* scale) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(key.x), "=r"(key.y) : "l"(bytes) : "memory");
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(key_scale) : "l"(scale) : "memory");
  }

  __device__ __forceinline__ void load_values(const char* bytes, const char* scales) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(bytes) : "memory");
    value_scales = load_in_order(scales);
  }

  __device__ __forceinline__ void store_key(uint32 to) const {
    const float x = scale_of(key_scale) * WIDE_UNIT<Element>;
    const float4 all = make_float4(x, x, x, x);
    store_shared(to, scaled_four(key.x, all), scaled_four(key.y, all));
  }

  // Zeros from token `left` on.
  __device__ __forceinline__ void store_values(uint32 to, int left) const {
    const auto scale = [&](uint32 pair, int token) {
      return token < left ? scale_of(token % 2 ? pair >> 16 : pair & 0xffffu) * WIDE_UNIT<Element> : 0.0f;
    };
    const uint4& s = value_scales;
    const float4 low = make_float4(scale(s.x, 0), scale(s.x, 1), scale(s.y, 2), scale(s.y, 3));
    const float4 high = make_float4(scale(s.z, 4), scale(s.z, 5), scale(s.w, 6), scale(s.w, 7));
    store_shared(to, scaled_four(value.x, low), scaled_four(value.y, high));
  }
};
#endif

// One sequence's keys and values of one KV head; copies whole tiles, all warps of the thread block together.
struct PagedTiles {
  const char* key_cache;    // [num_blocks, num_kv_heads, head_size / x, block_size, x]
  const char* value_cache;  // [num_blocks, num_kv_heads, head_size, block_size]
  const int* block_table;   // [max_blocks_per_seq]
  int seq_len;
  uint32 block_bytes;  // between blocks
  uint32 offset;       // of this head and lane in a block; of the head alone in a cache of bytes
  uint32 scales;       // of this head in a block, in a cache of bytes
  int warp, lane;

  __device__ __forceinline__ PagedTiles(const Cached* keys, const Cached* values, const int* table, int length,
                                        int kv_head, int num_kv_heads)
      : key_cache(reinterpret_cast<const char*>(keys)),
        value_cache(reinterpret_cast<const char*>(values)),
        block_table(table),
        seq_len(length),
        block_bytes(num_kv_heads * BLOCK_ROWS * ROW_BYTES),
        warp(threadIdx.x / WARP_SIZE),
        lane(threadIdx.x % WARP_SIZE) {
    offset = (kv_head * BLOCK_ROWS + lane) * ROW_BYTES;
#if CACHE_KIND
    block_bytes = num_kv_heads * (PAGE_HEAD_BYTES + SCALES_HEAD_BYTES);
    offset = kv_head * PAGE_HEAD_BYTES;
    scales = num_kv_heads * PAGE_HEAD_BYTES + kv_head * SCALES_HEAD_BYTES;
#endif
  }

  // Id of the tile's block `lane`; asked for a tile ahead, so that nobody waits for it. What the table holds past
  // the sequence's end is never used.
  __device__ __forceinline__ int load_block_id(int tile) const {
    const int block = tile * TILE_BLOCKS + lane;
    const bool there = tile >= 0 && lane < TILE_BLOCKS && block * BLOCK_SIZE < seq_len;
    return there ? __ldg(block_table + block) : 0;
  }

  __device__ __forceinline__ void copy(uint32 stage, int tile, int block_id) const {
#if CACHE_KIND
    copy_bytes(stage, tile, block_id);
#else
    if ((tile + 1) * TILE_KEYS <= seq_len) {
      copy_tile<false>(stage, tile, block_id);
    } else {
      copy_tile<true>(stage, tile, block_id);
    }
#endif
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

#if CACHE_KIND
  // The same of bytes.
  __device__ __forceinline__ void copy_bytes(uint32 stage, int tile, int block_id) const {
    constexpr int PIECES = TILE_BLOCKS * BLOCK_PIECES, ROUNDS = ceil_div(PIECES, NUM_WARPS);
#pragma unroll 1
    for (int first = 0; first < ROUNDS; first += BYTE_PIECES) {
      BytePiece pieces[BYTE_PIECES];
#pragma unroll
      for (int pass = 0; pass < 2; pass++) {  // all reads, then all writes
#pragma unroll
        for (int i = 0; i < BYTE_PIECES; i++) {
          const int index = (first + i) * NUM_WARPS + warp;
          const int block = index / BLOCK_PIECES, row = index % BLOCK_PIECES * WARP_SIZE + lane;
          const uint32 id = __shfl_sync(FULL_WARP, block_id, min(block, TILE_BLOCKS - 1));
          if (index >= PIECES || row >= BLOCK_ROWS) continue;
          const int chunk = row / BLOCK_SIZE, slot = row % BLOCK_SIZE, octet = row % BLOCK_OCTETS;
          const int left = seq_len - tile * TILE_KEYS - block * BLOCK_SIZE;  // tokens of the block
          const uint64 page = static_cast<uint64>(id) * block_bytes;
          if (pass == 0 && left > 0) {
            pieces[i].load_key(key_cache + page + (offset + (chunk / 2 * BLOCK_SIZE + slot) * 16 + chunk % 2 * 8),
                               key_cache + page + (scales + slot * sizeof(Scale)));
            pieces[i].load_values(value_cache + page + (offset + row * 8),
                                  value_cache + page + (scales + octet * 8 * sizeof(Scale)));
          }
          if (pass == 1) {
            pieces[i].store_key(stage + chunk * KEY_CHUNK_BYTES + (block * BLOCK_SIZE + slot) * ROW_BYTES);
            pieces[i].store_values(stage + KEY_TILE_BYTES + (block * BLOCK_OCTETS + octet) * VALUE_OCTET_BYTES +
                                       row / BLOCK_OCTETS * ROW_BYTES,
                                   left - octet * 8);
          }
        }
      }
    }
  }
#endif
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
