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
// The softmax is online (Milakov & Gimelshein 2018, arXiv 1805.02867), scores in units of log2.

#pragma once

#include "attention/scores.cuh"
#include "common/mma.cuh"
#include "common/online_softmax.cuh"

#ifndef PREFETCH_KEYS
#define PREFETCH_KEYS 1  // read the next tile's K before this tile's softmax; costs no registers, K's are free then
#endif
#ifndef TILE_PARTS
#define TILE_PARTS (HEAD_SIZE > 128 ? 4 : 1)
#endif

constexpr int TILE_TOKENS = 32;
constexpr int TILE_BLOCKS = TILE_TOKENS / BLOCK_SIZE;
constexpr int KEY_ROWS = HEAD_SIZE / 8;           // 16-byte rows of one token's key
constexpr int KEY_STEPS = ceil_div(KEY_ROWS, 4);  // 32 dimensions each
constexpr int DIM_TILES = HEAD_SIZE / 16;
constexpr int PARTS = TILE_PARTS;  // K and V of a tile go through the registers in so many parts
constexpr int PART_STEPS = ceil_div(KEY_STEPS, PARTS);
constexpr int PART_DIMS = ceil_div(DIM_TILES, PARTS);
static_assert(PARTS * PART_STEPS == KEY_STEPS && PARTS * PART_DIMS == DIM_TILES, "parts cover a tile exactly");
constexpr bool PIPELINED = PREFETCH_KEYS && PARTS == 1;
constexpr int WEIGHT_STRIDE = TILE_TOKENS + 8;  // elements between rows of P in shared memory; no bank conflicts

// Where a sequence's keys and values lie.
struct PagedContext {
  const Element* key_cache;    // [num_blocks, num_kv_heads, head_size / 8, block_size, 8], moved to the KV head
  const Element* value_cache;  // [num_blocks, num_kv_heads, head_size, block_size], moved to the KV head
  int64 key_stride;            // elements between blocks
  int64 value_stride;
  const int* block_table;  // [max_blocks]; blocks of tokens at `end` and beyond may have any id
  int max_blocks;
  int begin, end;  // tokens that may be looked at: begin <= position < end
};

template <int ROW_TILES>
struct DecodeWarp {
  static constexpr int ROWS = 8 * ROW_TILES;

  uint4 query[ROW_TILES][KEY_STEPS];      // B operands of S^T
  float output[DIM_TILES][ROW_TILES][4];  // O^T: dimensions g, g + 8; rows 2q, 2q + 1
  float top[ROW_TILES][2];                // largest score of rows 2q, 2q + 1; the same in all g
  float total[ROW_TILES][2];              // sum of weights, of this lane's tokens until `finish`
#if ALIBI
  float slope[ROW_TILES][2];
  int query_position[ROW_TILES][2];
#endif
  uint4 key[PART_STEPS][4];      // A operands of S^T: 16-byte row x tokens g + 8 r
  uint4 value[PART_DIMS][2];     // A operands of O^T: dimensions g and g + 8
  int next_blocks[TILE_BLOCKS];  // block ids of the next tile, as they stand in the table
  int g, q;

  __device__ __forceinline__ DecodeWarp() : g(threadIdx.x % WARP_SIZE / 4), q(threadIdx.x % 4) {
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
      top[t][0] = top[t][1] = NEGATIVE_INFINITY;
      total[t][0] = total[t][1] = 0.0f;
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
        query[t][j] = row != nullptr && chunk < KEY_ROWS ? load_16(row + 8 * chunk) : make_uint4(0, 0, 0, 0);
      }
    }
  }

  // Reads the block ids of a tile. The length of the sequence need not be known yet, so that the first read of the
  // table and that of the length go out together; what lies past the end is sorted out before it is used.
  __device__ __forceinline__ void read_table(const int* block_table, int max_blocks, int tile) {
#pragma unroll
    for (int i = 0; i < TILE_BLOCKS; i++)
      next_blocks[i] = __ldg(block_table + min(tile * TILE_BLOCKS + i, max_blocks - 1));
  }

  // Brings a tile into the registers before the query is there; `read_table` has been called for it.
  __device__ __forceinline__ void fetch(const PagedContext& context, int tile) {
    static_assert(PARTS == 1, "a whole tile fits into the registers");
    drop_foreign_blocks(context, tile);
    int blocks[TILE_BLOCKS];
#pragma unroll
    for (int i = 0; i < TILE_BLOCKS; i++) blocks[i] = next_blocks[i];
    load_keys(context, blocks, 0);
    load_values(context, blocks, 0);
  }

  // Attends over tiles `first_tile`, `first_tile + step`, ... below `end_tile`; `read_table` has been called for
  // the first, or `fetch` if FETCHED. `weights` is this warp's own shared memory, `[ROWS, WEIGHT_STRIDE]`.
  template <bool FETCHED = false>
  __device__ __forceinline__ void attend(const PagedContext& context, const ScoreScale& scale, int first_tile,
                                         int end_tile, int step, Element* weights) {
    if (first_tile >= end_tile) return;
    int blocks[TILE_BLOCKS];
    if (!FETCHED) {
      drop_foreign_blocks(context, first_tile);
      if (PIPELINED) load_keys(context, next_blocks, 0);
    }
    for (int tile = first_tile; tile < end_tile; tile += step) {
#pragma unroll
      for (int i = 0; i < TILE_BLOCKS; i++) blocks[i] = next_blocks[i];
      const int next = tile + step;
      const bool more = next < end_tile;
      if (more) read_table(context.block_table, context.max_blocks, next);
      float scores[2][ROW_TILES][4] = {};
      if (PIPELINED) {
        if (!FETCHED || tile != first_tile) load_values(context, blocks, 0);
        multiply_keys(scores, 0);
        if (more) {
          drop_foreign_blocks(context, next);
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
      const int position = tile * TILE_TOKENS;
      const bool at_edge = position < context.begin || position + TILE_TOKENS > context.end;
      weigh(scores, scale, context, position, at_edge, weights);
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

  // Afterwards `total` is the sum over all tokens of the warp.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
      total[t][0] = warp_sum<16, 4>(total[t][0]);
      total[t][1] = warp_sum<16, 4>(total[t][1]);
    }
  }

 private:
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
      const Element* tokens = context.key_cache + blocks[8 * r / BLOCK_SIZE] * context.key_stride +
                              (q * BLOCK_SIZE + 8 * r % BLOCK_SIZE + g) * 8;
#pragma unroll
      for (int j = 0; j < PART_STEPS; j++) {
        const int step = part * PART_STEPS + j;
        const bool inside = (step + 1) * 4 <= KEY_ROWS || q + 4 * step < KEY_ROWS;
        key[j][r] = inside ? load_once(tokens + step * 4 * BLOCK_SIZE * 8) : make_uint4(0, 0, 0, 0);
      }
    }
  }

  __device__ __forceinline__ void load_values(const PagedContext& context, const int (&blocks)[TILE_BLOCKS],
                                              int part) {
    int block = blocks[0];  // of this lane's eight tokens
#pragma unroll
    for (int i = 1; i < TILE_BLOCKS; i++) {
      const int later = blocks[i];  // read in any case: a choice of address would put the array into local memory
      block = 8 * q / BLOCK_SIZE == i ? later : block;
    }
    const Element* rows = context.value_cache + block * context.value_stride + g * BLOCK_SIZE + 8 * q % BLOCK_SIZE;
#pragma unroll
    for (int d = 0; d < PART_DIMS; d++) {
      const int dims = 16 * (part * PART_DIMS + d);
      value[d][0] = load_once(rows + dims * BLOCK_SIZE);
      value[d][1] = load_once(rows + (dims + 8) * BLOCK_SIZE);
    }
  }

  __device__ __forceinline__ void multiply_keys(float (&scores)[2][ROW_TILES][4], int part) {
#pragma unroll
    for (int j = 0; j < PART_STEPS; j++) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
        const uint4 low = key[j][2 * m], high = key[j][2 * m + 1];
        const uint32 first[4] = {low.x, high.x, low.y, high.y};
        const uint32 second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++) {
          const uint4 b = query[t][part * PART_STEPS + j];
          mma_16x8x16<Element>(scores[m][t], first, {b.x, b.y});
          mma_16x8x16<Element>(scores[m][t], second, {b.z, b.w});
        }
      }
    }
  }

  // Scores -> weights, in shared memory as elements; `top`, `total` and `output` follow.
  __device__ __forceinline__ void weigh(float (&scores)[2][ROW_TILES][4], const ScoreScale& scale,
                                        const PagedContext& context, int position, bool at_edge, Element* weights) {
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float highest = NEGATIVE_INFINITY;
#pragma unroll
        for (int i = 0; i < 4; i++) {  // tokens g + 8 i
          float& score = scores[i / 2][t][2 * (i % 2) + e];
          const int token = position + 8 * i + g;
#if ALIBI
          score = scale.score(score, slope[t][e], token - query_position[t][e]);
#else
          score = scale.score(score);
#endif
          if (at_edge && (token < context.begin || token >= context.end)) score = NEGATIVE_INFINITY;
          highest = fmaxf(highest, score);
        }
        highest = fmaxf(warp_max<16, 4>(highest), top[t][e]);
        const float keep = exp2_below(top[t][e], highest);
        top[t][e] = highest;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float weight = exp2_below(scores[i / 2][t][2 * (i % 2) + e], highest);
          sum += weight;
          weights[(8 * t + 2 * q + e) * WEIGHT_STRIDE + 8 * i + g] = from_float<Element>(weight);
        }
        total[t][e] = total[t][e] * keep + sum;
#pragma unroll
        for (int d = 0; d < DIM_TILES; d++) {
          output[d][t][e] *= keep;
          output[d][t][e + 2] *= keep;
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_values(const uint4 (&weight)[ROW_TILES], const PagedContext& context,
                                                  int position, bool at_edge, int part) {
    // What lies outside the context may be anything, NaN too, and zero times NaN is NaN.
    uint32 keep[4];
    if (at_edge) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int token = position + 8 * q + 2 * i;
        keep[i] = (token >= context.begin && token < context.end ? 0x0000ffffu : 0u) |
                  (token + 1 >= context.begin && token + 1 < context.end ? 0xffff0000u : 0u);
      }
    }
#pragma unroll
    for (int d = 0; d < PART_DIMS; d++) {
      uint4 low = value[d][0], high = value[d][1];
      if (at_edge) {
        low = make_uint4(low.x & keep[0], low.y & keep[1], low.z & keep[2], low.w & keep[3]);
        high = make_uint4(high.x & keep[0], high.y & keep[1], high.z & keep[2], high.w & keep[3]);
      }
      const uint32 first[4] = {low.x, high.x, low.y, high.y};
      const uint32 second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int t = 0; t < ROW_TILES; t++) {
        mma_16x8x16<Element>(output[part * PART_DIMS + d][t], first, {weight[t].x, weight[t].y});
        mma_16x8x16<Element>(output[part * PART_DIMS + d][t], second, {weight[t].z, weight[t].w});
      }
    }
  }
};
