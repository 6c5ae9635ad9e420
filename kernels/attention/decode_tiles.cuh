// One warp's attention of a few query rows over tiles of 32 cached tokens, on tensor cores.
//
// A *row* is one query head of one sequence; all rows of a warp look at the same KV head, so a tile of K and V is
// read once for all of them. Nothing is read twice and nothing is shared between warps, so K and V go from global
// memory straight into the registers that `mma` reads, 16 bytes a lane: the cache layout of PagedAttention (Kwon et
// al. 2023, arXiv 2309.06180) allows it, once the order of the summed dimension is left to the lane (g = lane / 4,
// q = lane % 4):
//
//   S^T = K Q^T   A = K, 16 tokens x 16 dimensions. Lane (g, q) reads the 16-byte rows `q, q + 4, ...` of tokens
//                 g, g + 8, g + 16, g + 24: eight dimensions, which stand for k = 2q, 2q+1, 2q+8, 2q+9 of two
//                 products. Q is read in the same order.
//   O^T = V^T P^T A = V^T, 16 dimensions x 16 tokens. Lane (g, q) reads 16 bytes of dimension rows g and g + 8:
//                 eight tokens 8q to 8q + 7, again for two products. P goes through shared memory into that order.
//
// In a cache of bytes (byte_elements.cuh) a 16-byte row of K is sixteen dimensions, for four products, and of V a
// lane reads eight bytes. They become halves right before their products, whatever the type of Q, in pairs whose
// places Q and P take over: halves hold bytes of either kind, and take fewer instructions than bfloat16s. Keys that
// are whole numbers stay so: Q is whole numbers of 16 bits then, upper and lower bytes for a product each, in steps
// of which the largest of a row has 32,512. The scale of a key multiplies its scores, that of a value its weights;
// so that those fit into halves, O is in a unit that follows the largest scale of values so far.
//
// The softmax is online (Milakov & Gimelshein 2018, arXiv 1805.02867), scores in units of log2. Over bytes the
// reference of a row is no maximum: it stays until a score is far above it, which most tiles do not have.

#pragma once

#include "attention/query_operands.cuh"
#include "attention/scores.cuh"
#include "common/byte_elements.cuh"
#include "common/mma.cuh"
#include "common/mma_integers.cuh"
#include "common/online_softmax.cuh"

#ifndef PREFETCH_KEYS
#define PREFETCH_KEYS 1  // read the next tile's K before this tile's softmax; costs no registers, K's are free then
#endif
#ifndef TILE_PARTS
#define TILE_PARTS (HEAD_SIZE > 128 ? 4 : 1)
#endif

constexpr int TILE_TOKENS = 32;
constexpr int TILE_BLOCKS = TILE_TOKENS / BLOCK_SIZE;
constexpr int KEY_ROWS = HEAD_SIZE / CACHED_ROW;  // 16-byte rows of one token's key
constexpr int KEY_STEPS = ceil_div(KEY_ROWS, 4);  // four of them each
constexpr int ROW_PIECES_OF_QUERY = CACHED_ROW / 8;
constexpr int KEY_PRODUCTS = CACHED_ROW / 4;  // of 16 dimensions, in a step
constexpr int DIM_TILES = HEAD_SIZE / 16;
constexpr int PARTS = TILE_PARTS;  // K and V of a tile go through the registers in so many parts
constexpr int PART_STEPS = ceil_div(KEY_STEPS, PARTS);
constexpr int PART_DIMS = ceil_div(DIM_TILES, PARTS);
static_assert(PARTS * PART_STEPS == KEY_STEPS && PARTS * PART_DIMS == DIM_TILES, "parts cover a tile exactly");
constexpr bool PIPELINED = PREFETCH_KEYS && PARTS == 1;
// Whether block ids are read two tiles ahead where the first tile is fetched: answers come in the order of the
// questions, so an id that is asked for behind keys and values is waited for as long as they are. Over 16 bits it
// took longer.
constexpr bool READS_AHEAD = CACHE_KIND != 0;
#if CACHE_KIND
using EightTokens = uint2;                      // of a dimension of V
constexpr bool NEIGHBOURS = CONVERTS<Operand>;  // whether pairs of operands are, and may be no numbers
constexpr float SLACK = 8.0f;                   // how far above its reference a score may be, in units of log2
#else
using EightTokens = uint4;
constexpr bool NEIGHBOURS = true;
constexpr float SLACK = 0.0f;
#endif
constexpr int WEIGHT_STRIDE = TILE_TOKENS + 8;  // elements between rows of P in shared memory; no bank conflicts

// Where a sequence's keys and values lie.
struct PagedContext {
  const Cached* key_cache;    // [num_blocks, num_kv_heads, head_size / x, block_size, x], moved to the KV head
  const Cached* value_cache;  // [num_blocks, num_kv_heads, head_size, block_size], moved to the KV head
  int64 key_stride;           // elements between blocks
  int64 value_stride;
  const int* block_table;  // [max_blocks]; blocks of tokens at `end` and beyond may have any id
  int max_blocks;
  int begin, end;          // tokens that may be looked at: begin <= position < end
  int64 scales_from_head;  // bytes, of a cache of bytes: from the head's elements to its scales
};

constexpr float LEAST_UNIT = 1e-30f;
constexpr float LARGEST_RATIO = 128.0f;  // of a scale to the unit of O; times 2^SLACK a half has room for it

// Right after `wait_for_previous_kernel`, or before it of what was there before.
__device__ __forceinline__ Scale load_scale(const Cached* address) {
  Scale bits;
#if INPUT_IS_FRESH
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
#else
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(bits) : "l"(address));
#endif
  return bits;
}

// The tokens of a dimension of V that a lane has in a tile.
__device__ __forceinline__ void load_tokens(uint4& tokens, const Cached* address) { tokens = load_once(address); }
__device__ __forceinline__ void load_tokens(uint2& tokens, const Cached* address) {
#if INPUT_IS_FRESH
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(tokens.x), "=r"(tokens.y)
               : "l"(address)
               : "memory");
#else
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(tokens.x), "=r"(tokens.y)
               : "l"(address));
#endif
}

template <int ROW_TILES>
struct DecodeWarp {
  static constexpr int ROWS = 8 * ROW_TILES;

  uint4 query[ROW_TILES][KEY_STEPS][ROW_PIECES_OF_QUERY];  // B operands of S^T
  float output[DIM_TILES][ROW_TILES][4];                   // O^T: dimensions g, g + 8; rows 2q, 2q + 1
  float top[ROW_TILES][2];                                 // reference of rows 2q, 2q + 1; the same in all g
  float total[ROW_TILES][2];                               // sum of weights, of this lane's tokens until `finish`
#if ALIBI
  float slope[ROW_TILES][2];
  int query_position[ROW_TILES][2];
#endif
  uint4 key[PART_STEPS][4];         // A operands of S^T: 16-byte row x tokens g + 8 r
  EightTokens value[PART_DIMS][2];  // A operands of O^T: dimensions g and g + 8
#if CACHE_KIND
  Scale key_scale, value_scale;    // of token `lane` of the tile, as they were loaded: nobody waits for them yet
  float unit, inverse_unit;        // of `output`
  float query_unit[ROW_TILES][2];  // of rows 2q, 2q + 1 in `query`, with QUERY_UNITS
#endif
  int next_blocks[TILE_BLOCKS];   // block ids of the next tile, as they stand in the table
  int later_blocks[TILE_BLOCKS];  // of the one behind it
  int g, q;

  __device__ __forceinline__ DecodeWarp() : g(threadIdx.x % WARP_SIZE / 4), q(threadIdx.x % 4) {
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
      top[t][0] = top[t][1] = NEGATIVE_INFINITY;
      total[t][0] = total[t][1] = 0.0f;
#if CACHE_KIND
      unit = LEAST_UNIT, inverse_unit = 1.0f / LEAST_UNIT;
#endif
#pragma unroll
      for (int d = 0; d < DIM_TILES; d++)
        output[d][t][0] = output[d][t][1] = output[d][t][2] = output[d][t][3] = 0.0f;
    }
  }

  // `row_query(row)` gives the row's query `[head_size]`, or null for a row that is not there.
  template <typename RowQuery>
  __device__ __forceinline__ void load_query(RowQuery row_query) {
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
      const Element* row = row_query(8 * t + g);
#pragma unroll
      for (int j = 0; j < KEY_STEPS; j++) {
        const int chunk = q + 4 * j;
#pragma unroll
        for (int i = 0; i < ROW_PIECES_OF_QUERY; i++) {
          const bool there = row != nullptr && chunk < KEY_ROWS;
          query[t][j][i] = there ? load_16(row + CACHED_ROW * chunk + 8 * i) : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }

  // Reads the block ids of a tile. The length of the sequence need not be known yet, so that the first read of the
  // table and that of the length go out together; what lies past the end is sorted out before it is used.
  __device__ __forceinline__ void read_table(const int* block_table, int max_blocks, int tile) {
    read_ids(next_blocks, block_table, max_blocks, tile);
  }
  __device__ __forceinline__ void read_ahead(const int* block_table, int max_blocks, int tile) {
    read_ids(later_blocks, block_table, max_blocks, tile);
  }

  // The block of the token in place `token` of a tile.
  __device__ __forceinline__ static int block_of(const int (&blocks)[TILE_BLOCKS], int token) {
    int block = blocks[0];
#pragma unroll
    for (int i = 1; i < TILE_BLOCKS; i++) {
      const int later = blocks[i];  // read in any case: a choice of address would put the array into local memory
      block = token / BLOCK_SIZE == i ? later : block;
    }
    return block;
  }

  // Brings a tile into the registers before the query is there; `read_table` has been called for it.
  __device__ __forceinline__ void fetch(const PagedContext& context, int tile) {
    static_assert(PARTS == 1, "a whole tile fits into the registers");
    drop_foreign_blocks(context, tile);
    int blocks[TILE_BLOCKS];
#pragma unroll
    for (int i = 0; i < TILE_BLOCKS; i++) blocks[i] = next_blocks[i];
    load_scales(context, blocks);
    load_keys(context, blocks, 0);
    load_values(context, blocks, 0);
  }

  // Attends over tiles `first_tile`, `first_tile + step`, ... below `end_tile`; `read_table` has been called for
  // the first, or if FETCHED `fetch`, and `read_ahead` for the second with READS_AHEAD. `weights` is this warp's
  // own shared memory, `[ROWS, WEIGHT_STRIDE]`.
  template <bool FETCHED = false>
  __device__ __forceinline__ void attend(const PagedContext& context, const ScoreScale& scale, int first_tile,
                                         int end_tile, int step, Operand* weights) {
    if (first_tile >= end_tile) return;
    int blocks[TILE_BLOCKS];
    if (!FETCHED) {
      drop_foreign_blocks(context, first_tile);
      if (PIPELINED) {
        load_scales(context, next_blocks);
        load_keys(context, next_blocks, 0);
      }
    }
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) make_operands(query[t], t);  // while the first keys are on their way
    for (int tile = first_tile; tile < end_tile; tile += step) {
#pragma unroll
      for (int i = 0; i < TILE_BLOCKS; i++) blocks[i] = next_blocks[i];
      const int next = tile + step;
      const bool more = next < end_tile;
      if (READS_AHEAD && FETCHED) {
#pragma unroll
        for (int i = 0; i < TILE_BLOCKS; i++) next_blocks[i] = later_blocks[i];
        if (next + step < end_tile) read_ahead(context.block_table, context.max_blocks, next + step);
      } else if (more) {
        read_table(context.block_table, context.max_blocks, next);
      }
      float scores[2][ROW_TILES][4] = {};
      if (!PIPELINED) load_scales(context, blocks);
      if (PIPELINED && (!FETCHED || tile != first_tile)) load_values(context, blocks, 0);
      const int position = tile * TILE_TOKENS;
      const bool at_edge = position < context.begin || position + TILE_TOKENS > context.end;
      if (PIPELINED) multiply_keys(scores, 0);
      const TileScales tile_scales = take_scales(context, position, at_edge);  // the next ones may be loaded then
      if (PIPELINED) {
        if (more) {
          drop_foreign_blocks(context, next);
          load_scales(context, next_blocks);
          load_keys(context, next_blocks, 0);
        }
      } else {
        if (more) drop_foreign_blocks(context, next);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
          load_keys(context, blocks, part);
          if (part == PARTS - 1) load_values(context, blocks, 0);
          multiply_keys(scores, part);
        }
      }
      weigh(scores, scale, tile_scales, context, position, at_edge, weights);
      __syncwarp();
      uint4 weight[ROW_TILES];
#pragma unroll
      for (int t = 0; t < ROW_TILES; t++) weight[t] = load_16(weights + (8 * t + g) * WEIGHT_STRIDE + 8 * q);
      __syncwarp();
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        if (part > 0) load_values(context, blocks, part);
        multiply_values(weight, context, position, at_edge, part);
      }
    }
  }

  // Afterwards `total` is the sum over all tokens of the warp; `output` is in its unit, where it has one.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
      total[t][0] = warp_sum<16, 4>(total[t][0]);
      total[t][1] = warp_sum<16, 4>(total[t][1]);
    }
  }

 private:
  __device__ __forceinline__ static void read_ids(int (&ids)[TILE_BLOCKS], const int* block_table, int max_blocks,
                                                  int tile) {
#pragma unroll
    for (int i = 0; i < TILE_BLOCKS; i++) ids[i] = __ldg(block_table + min(tile * TILE_BLOCKS + i, max_blocks - 1));
  }

  // Of a cache of bytes, the scales of this lane's tokens g, g + 8, ...; of no token, a value's is 0.
  struct TileScales {
#if CACHE_KIND
    float keys[4], values[4];

    __device__ __forceinline__ float largest_of_values() const {
      return fmaxf(fmaxf(values[0], values[1]), fmaxf(values[2], values[3]));
    }
#endif
  };

  using Pieces = uint4[KEY_STEPS][ROW_PIECES_OF_QUERY];

  // Row `g` of tile `t` of the query, as it was loaded -> operands.
  __device__ __forceinline__ void make_operands(Pieces& pieces, int t) {
#if CACHE_KIND
    if constexpr (QUERY_UNITS) {
      float largest = 0.0f;
#pragma unroll
      for (int j = 0; j < KEY_STEPS; j++) {
#pragma unroll
        for (int i = 0; i < 8 * ROW_PIECES_OF_QUERY; i++) {
          largest = fmaxf(largest, fabsf(query_element(pieces[j], i)));
        }
      }
      const QueryUnit unit(warp_max<2, 1>(largest));
#pragma unroll
      for (int j = 0; j < KEY_STEPS; j++) ::make_operands(pieces[j], unit.inverse);
#pragma unroll
      for (int e = 0; e < 2; e++) query_unit[t][e] = __shfl_sync(FULL_WARP, unit.unit, 4 * (2 * q + e));
    }
#endif
#pragma unroll
    for (int i = 0; !INTEGER_KEYS && i < KEY_STEPS * ROW_PIECES_OF_QUERY; i++) {
      uint4& piece = pieces[i / ROW_PIECES_OF_QUERY][i % ROW_PIECES_OF_QUERY];
      piece = in_pairs(piece);
    }
  }

  // Eight elements in the order in which `as_pairs` gives four bytes.
  __device__ __forceinline__ static uint4 in_pairs(uint4 elements) {
    if (NEIGHBOURS) return elements;
    const auto low = [](uint32 a, uint32 b) { return (a & 0xffffu) | b << 16; };
    const auto high = [](uint32 a, uint32 b) { return a >> 16 | (b & 0xffff0000u); };
    return make_uint4(low(elements.x, elements.y), high(elements.x, elements.y), low(elements.z, elements.w),
                      high(elements.z, elements.w));
  }

  // Where token `g` of eight has its weight, in the same order.
  __device__ __forceinline__ int weight_place() const {
    return NEIGHBOURS ? g : (g & 4) | (g & 1) << 1 | (g >> 1 & 1);
  }

  // The `product`-th A operand of two rows of a tile.
  template <typename Words>
  __device__ __forceinline__ static void operand(uint32 (&a)[4], const Words& low, const Words& high, int product) {
    const uint32* first = reinterpret_cast<const uint32*>(&low);
    const uint32* second = reinterpret_cast<const uint32*>(&high);
#if CACHE_KIND
    as_pairs<Operand>(first[product], a[0], a[2]);
    as_pairs<Operand>(second[product], a[1], a[3]);
#else
    a[0] = first[2 * product], a[1] = second[2 * product];
    a[2] = first[2 * product + 1], a[3] = second[2 * product + 1];
#endif
  }

  __device__ __forceinline__ void load_scales(const PagedContext& context, const int (&blocks)[TILE_BLOCKS]) {
#if CACHE_KIND
    const int lane = threadIdx.x % WARP_SIZE;
    const int64 block = block_of(blocks, lane);
    const int64 at = context.scales_from_head + lane % BLOCK_SIZE * static_cast<int>(sizeof(Scale));
    key_scale = load_scale(context.key_cache + block * context.key_stride + at);
    value_scale = load_scale(context.value_cache + block * context.value_stride + at);
#endif
  }

  // Of the tile whose scales are there; the next one's may be loaded then. By shuffles: what waits for the scales
  // may not be moved in front of loads that are to be under way meanwhile.
  __device__ __forceinline__ TileScales take_scales(const PagedContext& context, int position, bool at_edge) {
    TileScales taken;
#if CACHE_KIND
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int token = 8 * i + g;
      taken.keys[i] = scale_of(__shfl_sync(FULL_WARP, static_cast<uint32>(key_scale), token)) *
                      (INTEGER_KEYS ? 1.0f : PAIRS_UNIT<Operand>);
      taken.values[i] = scale_of(__shfl_sync(FULL_WARP, static_cast<uint32>(value_scale), token));
      if (at_edge && (position + token < context.begin || position + token >= context.end)) taken.values[i] = 0.0f;
    }
#endif
    return taken;
  }

  // A tile's first block is the sequence's; it stands in for those past the end.
  __device__ __forceinline__ void drop_foreign_blocks(const PagedContext& context, int tile) {
#pragma unroll
    for (int i = 1; i < TILE_BLOCKS; i++) {
      if (tile * TILE_TOKENS + i * BLOCK_SIZE >= context.end) next_blocks[i] = next_blocks[0];
    }
  }

  __device__ __forceinline__ void load_keys(const PagedContext& context, const int (&blocks)[TILE_BLOCKS],
                                            int part) {
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const Cached* tokens = context.key_cache + blocks[8 * r / BLOCK_SIZE] * context.key_stride +
                             (q * BLOCK_SIZE + 8 * r % BLOCK_SIZE + g) * CACHED_ROW;
#pragma unroll
      for (int j = 0; j < PART_STEPS; j++) {
        const int step = part * PART_STEPS + j;
        const bool inside = (step + 1) * 4 <= KEY_ROWS || q + 4 * step < KEY_ROWS;
        key[j][r] = inside ? load_once(tokens + step * 4 * BLOCK_SIZE * CACHED_ROW) : make_uint4(0, 0, 0, 0);
      }
    }
  }

  __device__ __forceinline__ void load_values(const PagedContext& context, const int (&blocks)[TILE_BLOCKS],
                                              int part) {
    const int block = block_of(blocks, 8 * q);  // of this lane's eight tokens
    const Cached* rows = context.value_cache + block * context.value_stride + g * BLOCK_SIZE + 8 * q % BLOCK_SIZE;
#pragma unroll
    for (int d = 0; d < PART_DIMS; d++) {
      const int dims = 16 * (part * PART_DIMS + d);
      load_tokens(value[d][0], rows + dims * BLOCK_SIZE);
      load_tokens(value[d][1], rows + (dims + 8) * BLOCK_SIZE);
    }
  }

  __device__ __forceinline__ void multiply_floats(float (&scores)[2][ROW_TILES][4], int part) {
#pragma unroll
    for (int j = 0; j < PART_STEPS; j++) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < KEY_PRODUCTS; i++) {
          uint32 a[4];
          operand(a, key[j][2 * m], key[j][2 * m + 1], i);
#pragma unroll
          for (int t = 0; t < ROW_TILES; t++) {
            const uint4 b = query[t][part * PART_STEPS + j][i / 2];
            if (i % 2 == 0) mma_16x8x16<Operand>(scores[m][t], a, {b.x, b.y});
            if (i % 2 == 1) mma_16x8x16<Operand>(scores[m][t], a, {b.z, b.w});
          }
        }
      }
    }
  }

  // The same of whole numbers; at most 256 dimensions of 127 times 32,512 fit into 32 bits.
  __device__ __forceinline__ void multiply_integers(float (&scores)[2][ROW_TILES][4], int part) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int t = 0; t < ROW_TILES; t++) {
        int upper[4] = {}, lower[4] = {};
#pragma unroll
        for (int j = 0; j < PART_STEPS; j++) {
          const uint4 low = key[j][2 * m], high = key[j][2 * m + 1];
          const auto& b = query[t][part * PART_STEPS + j];  // upper bytes, and lower ones
          const uint4 first = make_uint4(low.x, high.x, low.y, high.y);
          const uint4 second = make_uint4(low.z, high.z, low.w, high.w);
          mma_16x8x32(upper, first, make_uint2(b[0].x, b[0].y));
          mma_16x8x32(lower, first, make_uint2(b[1].x, b[1].y));
          mma_16x8x32(upper, second, make_uint2(b[0].z, b[0].w));
          mma_16x8x32(lower, second, make_uint2(b[1].z, b[1].w));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) scores[m][t][i] += static_cast<float>(256 * upper[i] + lower[i]);
      }
    }
  }

  __device__ __forceinline__ void multiply_keys(float (&scores)[2][ROW_TILES][4], int part) {
    if constexpr (INTEGER_KEYS) {
      multiply_integers(scores, part);
    } else {
      multiply_floats(scores, part);
    }
  }

  // Scores -> weights, in shared memory as operands; `top`, `total` and `output` follow.
  __device__ __forceinline__ void weigh(float (&scores)[2][ROW_TILES][4], const ScoreScale& scale,
                                        const TileScales& tile_scales, const PagedContext& context, int position,
                                        bool at_edge, Operand* weights) {
    const int place = weight_place();
    float highest[ROW_TILES][2];
    bool above = false;
#if CACHE_KIND
    above = tile_scales.largest_of_values() > LARGEST_RATIO * unit;
#endif
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        highest[t][e] = NEGATIVE_INFINITY;
#pragma unroll
        for (int i = 0; i < 4; i++) {  // tokens g + 8 i
          float& score = scores[i / 2][t][2 * (i % 2) + e];
#if CACHE_KIND
          score *= QUERY_UNITS ? tile_scales.keys[i] * query_unit[t][e] : tile_scales.keys[i];
#endif
          const int token = position + 8 * i + g;
#if ALIBI
          score = scale.score(score, slope[t][e], token - query_position[t][e]);
#else
          score = scale.score(score);
#endif
          if (at_edge && (token < context.begin || token >= context.end)) score = NEGATIVE_INFINITY;
          highest[t][e] = fmaxf(highest[t][e], score);
        }
        above = above || highest[t][e] > top[t][e] + SLACK;
      }
    }
    if (__any_sync(FULL_WARP, above)) raise(highest, tile_scales);
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float reference = top[t][e] == NEGATIVE_INFINITY ? 0.0f : top[t][e];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float weight = exp2_fast(scores[i / 2][t][2 * (i % 2) + e] - reference);
          total[t][e] += weight;
#if CACHE_KIND
          const float in_unit = weight * (tile_scales.values[i] * inverse_unit);
#else
          const float in_unit = weight;
#endif
          weights[(8 * t + 2 * q + e) * WEIGHT_STRIDE + 8 * i + place] = from_float<Operand>(in_unit);
        }
      }
    }
  }

  // References become the largest scores so far, and the unit of `output` follows the scales.
  __device__ __forceinline__ void raise(const float (&highest)[ROW_TILES][2], const TileScales& tile_scales) {
    float shrink = 1.0f;
#if CACHE_KIND
    const float largest = warp_max<16, 4>(tile_scales.largest_of_values());
    if (largest > LARGEST_RATIO * unit) {
      shrink = unit;
      unit = largest * (2.0f / LARGEST_RATIO);  // the next ones may be twice as large
      inverse_unit = __fdividef(1.0f, unit);
      shrink *= inverse_unit;
    }
#endif
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float raised = fmaxf(warp_max<16, 4>(highest[t][e]), top[t][e]);
        const float keep = exp2_below(top[t][e], raised);
        top[t][e] = raised;
        total[t][e] *= keep;
#pragma unroll
        for (int d = 0; d < DIM_TILES; d++) {
          output[d][t][e] *= keep * shrink;
          output[d][t][e + 2] *= keep * shrink;
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_values(const uint4 (&weight)[ROW_TILES], const PagedContext& context,
                                                  int position, bool at_edge, int part) {
    // What lies outside the context may be anything, NaN too, and zero times NaN is NaN. Other bytes are numbers.
    uint32 keep[4];
    if (NEIGHBOURS && at_edge) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int token = position + 8 * q + 2 * i;
        keep[i] = (token >= context.begin && token < context.end ? 0x0000ffffu : 0u) |
                  (token + 1 >= context.begin && token + 1 < context.end ? 0xffff0000u : 0u);
      }
    }
#pragma unroll
    for (int d = 0; d < PART_DIMS; d++) {
      uint32 first[4], second[4];
      operand(first, value[d][0], value[d][1], 0);
      operand(second, value[d][0], value[d][1], 1);
      if (NEIGHBOURS && at_edge) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          first[i] &= keep[i / 2];
          second[i] &= keep[2 + i / 2];
        }
      }
#pragma unroll
      for (int t = 0; t < ROW_TILES; t++) {
        mma_16x8x16<Operand>(output[part * PART_DIMS + d][t], first, {weight[t].x, weight[t].y});
        mma_16x8x16<Operand>(output[part * PART_DIMS + d][t], second, {weight[t].z, weight[t].w});
      }
    }
  }
};
