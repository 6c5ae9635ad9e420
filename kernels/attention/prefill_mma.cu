// Prefill: a varlen batch of query chunks against the cached tokens before each chunk and the chunk itself,
// causally, on tensor cores.
//
//   output[t, h] = sum_k softmax_k(rule(query[t, h] . key[k])) value[k],   k the tokens that t sees
//
// A thread block holds a tile of query rows (prefill_schedule.cuh) and walks the tiles of keys from the right, so
// that those with a mask come first; copies of the next tiles run beside the products (prefill_tiles.cuh). A warp
// owns 16 or 32 rows whole: their scores stay in registers, become the A operand of P V where they are, and no warp
// waits for another's softmax. FlashAttention-2: Dao 2023 (arXiv 2307.08691).
//
// The running maximum is raised only when a score passes it by more than 2^8 in its unit of log2: weights then stay
// within 2^8, which neither 16-bit type minds, and the sums so far are hardly ever rescaled (the result is the
// same: numerator and denominator carry one factor). So a tile needs no reduction over lanes at all.
//
// Few queries against a long context leave most of the GPU idle. SPLIT_KEYS shares the keys out over gridDim.y and
// leaves partial results, which prefill_merge.cu puts together and adds the sinks to.
//
// With PART_KEYS a row's numbers depend on its own tokens alone, not on the rows of its tile, the length of the
// chunk or the grid: each row raises its maximum for itself, the keys are in parts of so many from key 0 on,
// and parts are put together in one order (part_fold.cuh), the sink last, here or, shared out over the grid, in
// prefill_merge.cu.

#ifndef TILE_KEYS
#define TILE_KEYS 64
#endif
#ifndef NUM_WARPS
#define NUM_WARPS 4
#endif
#ifndef WARP_ROWS
#define WARP_ROWS 32
#endif
#ifndef QUERY_IN_REGISTERS
#define QUERY_IN_REGISTERS 0
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef MIN_THREAD_BLOCKS
#define MIN_THREAD_BLOCKS 1
#endif
#ifndef SPLIT_KEYS
#define SPLIT_KEYS 0
#endif
#ifndef PART_KEYS
#define PART_KEYS 0  // of a part, whole tiles; 0: no parts
#endif

#include "attention/scores.cuh"
#include "common/dependent_launch.cuh"
#include "attention/part_fold.cuh"
#include "attention/prefill_schedule.cuh"
#include "attention/prefill_tiles.cuh"

constexpr int TILE_ROWS = NUM_WARPS * WARP_ROWS;
constexpr int ROW_TILES = WARP_ROWS / 16;
constexpr int KEY_COLUMNS = TILE_KEYS / 8;
constexpr int KEY_STEPS = TILE_KEYS / 16;
constexpr int KEY_PRODUCTS = HEAD_SIZE / 16 * KEY_STEPS;
constexpr int KEY_WEIGHTS = KEY_STEPS * 4 * (WARP_ROWS / 16);
constexpr int DIM_COLUMNS = HEAD_SIZE / 8;
constexpr int DIM_STEPS = HEAD_SIZE / 16;
constexpr int QUERY_CHUNK_BYTES = TILE_ROWS * ROW_BYTES;
constexpr int QUERY_TILE_BYTES = HEAD_SIZE / 8 * QUERY_CHUNK_BYTES;
constexpr float MAX_EXPONENT = 8.0f;  // of a weight
constexpr float LOWEST = -1e30f;      // below every score but -inf; finite, so that differences are never NaN
constexpr int PART_TILES = PART_KEYS / TILE_KEYS;
constexpr bool FOLDS_PARTS = PART_TILES > 0 && !SPLIT_KEYS;  // a thread block walks through all parts

static_assert(STAGES >= 2 && ROW_TILES * 16 == WARP_ROWS, "tile of queries");
static_assert(PART_KEYS % TILE_KEYS == 0, "a part is whole tiles");

// The rows of one warp: scores, running softmax and weighted sums. A lane holds rows 16 m + 8 h + lane / 4 (m the
// row tile, h 0 or 1) and of those columns 8 n + 2 (lane % 4) + {0, 1}; every array here is [m][..][2 h + {0, 1}].
struct WarpRows {
  float sums[ROW_TILES][DIM_COLUMNS][4] = {};
  float scores[ROW_TILES][KEY_COLUMNS][4];
  uint32 weights[KEY_STEPS][ROW_TILES][4];
  float top[ROW_TILES][2];         // the maximum in use, units of log2; one value in all lanes of a row
  float total[ROW_TILES][2] = {};  // of the weights of this lane's columns
#if QUERY_IN_REGISTERS
  uint32 query[DIM_STEPS][ROW_TILES][4];
#else
  uint32 query;  // shared memory
#endif
#if ALIBI
  float slope[ROW_TILES][2];
#endif

  __device__ __forceinline__ WarpRows() {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) top[m][0] = top[m][1] = LOWEST;
  }

  // As if no key had been seen yet.
  __device__ __forceinline__ void start_anew() {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
      top[m][0] = top[m][1] = LOWEST;
      total[m][0] = total[m][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < DIM_COLUMNS; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) sums[m][n][e] = 0.0f;
      }
    }
  }

  // `at`: this lane's place in shared memory for the A operands.
  __device__ __forceinline__ void take_query(uint32 at) {
#if QUERY_IN_REGISTERS
#pragma unroll
    for (int k = 0; k < DIM_STEPS; k++) {
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++)
        load_matrices(query[k][m], at + 2 * k * QUERY_CHUNK_BYTES + m * 16 * ROW_BYTES);
    }
#else
    query = at;
#endif
  }

  // scores = Q K^T. `between(i)` is called after the i-th of KEY_PRODUCTS groups of products, to do something else
  // in their shadow.
  template <typename Between>
  __device__ __forceinline__ void multiply_keys(uint32 keys, Between between) {
    float next[ROW_TILES][KEY_COLUMNS][4] = {};
#pragma unroll
    for (int k = 0; k < DIM_STEPS; k++) {
#if QUERY_IN_REGISTERS
      const uint32(&a)[ROW_TILES][4] = query[k];
#else
      uint32 a[ROW_TILES][4];
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++)
        load_matrices(a[m], query + 2 * k * QUERY_CHUNK_BYTES + m * 16 * ROW_BYTES);
#endif
#pragma unroll
      for (int n = 0; n < KEY_COLUMNS; n += 2) {
        uint32 b[4];
        load_matrices(b, keys + 2 * k * KEY_CHUNK_BYTES + n * 8 * ROW_BYTES);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
          mma_16x8x16<Element>(next[m][n], a[m], {b[0], b[1]});
          mma_16x8x16<Element>(next[m][n + 1], a[m], {b[2], b[3]});
        }
        between(k * KEY_STEPS + n / 2);
      }
    }
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < KEY_COLUMNS; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) scores[m][n][e] = next[m][n][e];
      }
    }
  }

  // Scores in units of log2 where more than a factor is needed. `distance`: position of this lane's first key less
  // that of its first row; `row_distance(m, h)`: what the position of a row is ahead of the first.
  template <typename RowDistance>
  __device__ __forceinline__ void adjust(const ScoreScale& scale, int distance, RowDistance row_distance) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < KEY_COLUMNS; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float& score = scores[m][n][e];
#if ALIBI
          const int ahead = distance + 8 * n + e % 2 - row_distance(m, e / 2);
#if PART_KEYS  // of two products and a sum a compiler fuses either, and not the same in every variant
          score = fmaf(slope[m][e / 2], static_cast<float>(ahead), scale.score(score));
#else
          score = scale.score(score, slope[m][e / 2], ahead);
#endif
#else
          score = scale.score(score);
#endif
        }
      }
    }
  }

  template <typename RowDistance>
  __device__ __forceinline__ void mask(int distance, RowDistance row_distance, int sliding_window) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int first = distance - row_distance(m, h);
#pragma unroll
        for (int n = 0; n < KEY_COLUMNS; n++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int ahead = first + 8 * n + e;  // of the key before the query
            if (ahead > 0 || ahead <= -sliding_window) scores[m][n][2 * h + e] = NEGATIVE_INFINITY;
          }
        }
      }
    }
  }

  // Keeps all weights to come within 2^MAX_EXPONENT. `factor`: scores -> units of log2.
  __device__ __forceinline__ void raise_top(float factor) {
    float highest[ROW_TILES][2];
    bool passed = false;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        highest[m][h] = fmaxf(scores[m][0][2 * h], scores[m][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < KEY_COLUMNS; n++) {
          highest[m][h] = fmaxf(highest[m][h], fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
        }
        highest[m][h] *= factor;
        passed |= highest[m][h] > top[m][h] + MAX_EXPONENT;
      }
    }
    if (!__any_sync(FULL_WARP, passed)) return;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float before = top[m][h], row_highest = warp_max<2, 1>(highest[m][h]);
        // With parts a row's company has no say in when it raises its own.
        const bool raises = PART_TILES == 0 || row_highest > before + MAX_EXPONENT;
        top[m][h] = raises ? fmaxf(before, row_highest) : before;
        const float shrink = exp2_fast(before - top[m][h]);
        total[m][h] = __fmul_rn(total[m][h], shrink);
#pragma unroll
        for (int n = 0; n < DIM_COLUMNS; n++) {
          sums[m][n][2 * h] *= shrink;
          sums[m][n][2 * h + 1] *= shrink;
        }
      }
    }
  }

  // The i-th of KEY_WEIGHTS pieces of the weights 2^(scores - top), as A operands of P V.
  __device__ __forceinline__ void weigh(int i, float factor) {
    const int k = i / (4 * ROW_TILES), m = i / 4 % ROW_TILES, r = i % 4;  // r: rows + 8 (r % 2), keys + 8 (r / 2)
    const float* pair = &scores[m][2 * k + r / 2][2 * (r % 2)];
    const float low = exp2_fast(fmaf(pair[0], factor, -top[m][r % 2]));
    const float high = exp2_fast(fmaf(pair[1], factor, -top[m][r % 2]));
    total[m][r % 2] += low + high;
    weights[k][m][r] = pack_pair<Element>(low, high);
  }

  // sums += weights V; `before(k)` is called before the products of 16 keys.
  template <typename Before>
  __device__ __forceinline__ void multiply_values(uint32 values, Before before) {
#pragma unroll
    for (int k = 0; k < KEY_STEPS; k++) {
      before(k);
#pragma unroll
      for (int n = 0; n < DIM_COLUMNS; n += 2) {
        uint32 b[4];
        load_matrices(b, values + 2 * k * VALUE_OCTET_BYTES + n * 8 * ROW_BYTES);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
          mma_16x8x16<Element>(sums[m][n], weights[k][m], {b[0], b[1]});
          mma_16x8x16<Element>(sums[m][n + 1], weights[k][m], {b[2], b[3]});
        }
      }
    }
  }

  // Afterwards `sums` is the result, `total` the sum of all weights; `sink(m, h)` is the sink of a row.
  template <typename Sink>
  __device__ __forceinline__ void finish(Sink sink) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        total[m][h] = warp_sum<2, 1>(total[m][h]);
#if SINKS && !SPLIT_KEYS && !PART_KEYS
        const float before = top[m][h];
        top[m][h] = fmaxf(before, sink(m, h));
        const float shrink = exp2_fast(before - top[m][h]);
        total[m][h] = total[m][h] * shrink + exp2_fast(sink(m, h) - top[m][h]);
#else
        constexpr float shrink = 1.0f;
#endif
        const float inverse = total[m][h] > 0.0f ? shrink / total[m][h] : 0.0f;
#pragma unroll
        for (int n = 0; n < DIM_COLUMNS; n++) {
          sums[m][n][2 * h] *= inverse;
          sums[m][n][2 * h + 1] *= inverse;
        }
      }
    }
  }

  __device__ __forceinline__ float log_sum_exp(int m, int h) const {
    return total[m][h] > 0.0f ? (top[m][h] + log2f(total[m][h])) * LN_2 : NEGATIVE_INFINITY;
  }
};

// The results of a warp's parts, as far as they are put together; indices as in `WarpRows`.
struct WarpFold {
  PartFold rows[ROW_TILES][2];
  float sums[ROW_TILES][DIM_COLUMNS][4] = {};

  // Takes a part that is finished.
  __device__ __forceinline__ void add(const WarpRows& part) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        if (!rows[m][h].add(part.log_sum_exp(m, h))) continue;
#pragma unroll
        for (int n = 0; n < DIM_COLUMNS; n++) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; e++) sums[m][n][e] = rows[m][h].sum(sums[m][n][e], part.sums[m][n][e]);
        }
      }
    }
  }

  // `sink(m, h)` is the sink of a row.
  template <typename Sink>
  __device__ __forceinline__ void finish(Sink sink) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const bool shrinks = SINKS && rows[m][h].add(sink(m, h));
        const float inverse = rows[m][h].inverse();
#pragma unroll
        for (int n = 0; n < DIM_COLUMNS; n++) {
          if (shrinks) {
            sums[m][n][2 * h] = rows[m][h].shrunk(sums[m][n][2 * h]);
            sums[m][n][2 * h + 1] = rows[m][h].shrunk(sums[m][n][2 * h + 1]);
          }
          sums[m][n][2 * h] *= inverse;
          sums[m][n][2 * h + 1] *= inverse;
        }
      }
    }
  }

  __device__ __forceinline__ float log_sum_exp(int m, int h) const { return rows[m][h].log_sum_exp(); }
};

// Grid: (num_kv_heads * (num_tokens * GROUP_SIZE / TILE_ROWS + num_seqs), num_splits), NUM_WARPS * 32 threads
// Shared memory: QUERY_TILE_BYTES + STAGES * STAGE_BYTES
extern "C" __global__ void __launch_bounds__(NUM_WARPS* WARP_SIZE, MIN_THREAD_BLOCKS) prefill_mma(
    Element* __restrict__ output,            // [num_tokens, num_heads, head_size], strided; unused with SPLIT_KEYS
    float* __restrict__ lse,                 // [num_tokens, num_heads] or null; [num_splits, ..] with SPLIT_KEYS
    float* __restrict__ partial_output,      // [num_splits, num_tokens, num_heads, head_size] with SPLIT_KEYS
    const Element* __restrict__ query,       // [num_tokens, num_heads, head_size], strided
    const Cached* __restrict__ key_cache,    // [num_blocks, num_kv_heads, head_size / x, block_size, x]
    const Cached* __restrict__ value_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    const int* __restrict__ block_tables,    // [num_seqs, max_blocks_per_seq]
    const int* __restrict__ seq_lens,        // [num_seqs]
    const int* __restrict__ cu_seqlens_q,    // [num_seqs + 1]
    const float* __restrict__ alibi_slopes,  // [num_heads], or null
    const float* __restrict__ sinks,         // [num_heads], or null
    int num_tokens, int num_seqs, int num_kv_heads, int max_blocks_per_seq, int64 query_token_stride,
    int64 query_head_stride, int64 output_token_stride, int64 output_head_stride,  // elements
    int sliding_window, float softmax_scale, float cap) {
  extern __shared__ __align__(128) char shared[];
  let_next_kernel_start();
  const int kv_head = blockIdx.x % num_kv_heads;
  const QueryTile tile = find_query_tile<TILE_ROWS>(cu_seqlens_q, num_seqs, blockIdx.x / num_kv_heads);
  if (tile.sequence < 0) return;
  const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
  const int num_heads = num_kv_heads * GROUP_SIZE;
  const int seq_len = seq_lens[tile.sequence];
  const int first_token = cu_seqlens_q[tile.sequence];       // of the batch
  const int context = seq_len - tile.num_rows / GROUP_SIZE;  // position of the chunk's first token
  const int last_row = min(tile.first_row + TILE_ROWS, tile.num_rows) - 1;
  const KeyRange seen =
      seen_tiles<TILE_KEYS>(context + tile.first_row / GROUP_SIZE, context + last_row / GROUP_SIZE, sliding_window);
  const KeyRange range = !SPLIT_KEYS  ? seen
                         : PART_TILES ? part_range<PART_TILES>(seen, blockIdx.y)
                                      : split_range(seen, blockIdx.y, gridDim.y);

  // This warp's rows. Those past the sequence's last one hold anything, and are not written.
  const int warp_row = tile.first_row + warp * WARP_ROWS;
  const bool works = warp_row < tile.num_rows;
  const auto row_of = [&](int i) { return min(warp_row + i, tile.num_rows - 1); };
  const int first_position = context + warp_row / GROUP_SIZE;
  const int last_position = context + row_of(WARP_ROWS - 1) / GROUP_SIZE;

  wait_for_previous_kernel();  // before it everything but the work's shape, which does not change in a step

  // Q to shared memory, [head_size / 8][TILE_ROWS][8]; a warp copies its own rows, 16 rows of 32 bytes at a time.
  const uint32 queries = shared_address(shared) + warp * WARP_ROWS * ROW_BYTES;
  const uint32 stages = shared_address(shared) + QUERY_TILE_BYTES;
  const int copy_row = lane % 8 + lane / 16 * 8, copy_chunk = lane / 8 % 2;
  const uint32 copy_at = copy_chunk * QUERY_CHUNK_BYTES + copy_row * ROW_BYTES;
  const auto row_offset = [&](int row, int64 token_stride, int64 head_stride) {
    return (first_token + row / GROUP_SIZE) * token_stride +
           (kv_head * GROUP_SIZE + row % GROUP_SIZE) * head_stride;
  };
  if (works) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
      const Element* from =
          query + row_offset(row_of(16 * m + copy_row), query_token_stride, query_head_stride) + copy_chunk * 8;
#pragma unroll
      for (int k = 0; k < DIM_STEPS; k++) {
        copy_part_async(queries + copy_at + 2 * k * QUERY_CHUNK_BYTES + m * 16 * ROW_BYTES,
                        reinterpret_cast<const char*>(from + 16 * k), 16);
      }
    }
  }

  const PagedTiles tiles(key_cache, value_cache,
                         block_tables + static_cast<int64>(tile.sequence) * max_blocks_per_seq, seq_len, kv_head,
                         num_kv_heads);
  const int last_tile = range.end - 1;
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    const int t = last_tile - i;
    if (t >= range.begin) tiles.copy(stages + i * STAGE_BYTES, t, tiles.load_block_id(t));
    commit_copies();
  }
  int block_id = tiles.load_block_id(last_tile - (STAGES - 1));

  WarpRows rows;
#if ALIBI
#pragma unroll
  for (int i = 0; i < 2 * ROW_TILES; i++) {
    const int head = kv_head * GROUP_SIZE + row_of(8 * i + lane / 4) % GROUP_SIZE;
    rows.slope[i / 2][i % 2] = load_slope(alibi_slopes, head);
  }
#endif
  const ScoreScale scale(softmax_scale, cap);
  const float factor = SOFT_CAP || ALIBI ? 1.0f : scale.dot;
  const int lane_row = lane / 4;
  const auto row_distance = [&](int m, int h) {
    return (warp_row + 16 * m + 8 * h + lane_row) / GROUP_SIZE - warp_row / GROUP_SIZE;
  };

  wait_copies<STAGES - 2>();
  __syncwarp();
  rows.take_query(queries + (lane / 16 * TILE_ROWS + lane % 16) * ROW_BYTES);
  const auto settle = [&](int t) {
    const int first_key = t * TILE_KEYS, last_key = first_key + TILE_KEYS - 1;
    const int distance = first_key + 2 * (lane % 4) - first_position;
    if (SOFT_CAP || ALIBI) rows.adjust(scale, distance, row_distance);
    if (last_key > first_position || first_key <= last_position - sliding_window) {
      rows.mask(distance, row_distance, sliding_window);
    }
    rows.raise_top(factor);
  };
  WarpFold fold;
  int stage = 0;
  for (int t = last_tile; t >= range.begin; t--) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // everybody's copies are here, and nobody reads the stage that is filled next
    const int next = t - (STAGES - 1);
    if (next >= range.begin) {
      tiles.copy(stages + (stage == 0 ? STAGES - 1 : stage - 1) * STAGE_BYTES, next, block_id);
      block_id = tiles.load_block_id(next - 1);
    }
    commit_copies();
    if (works && t * TILE_KEYS <= last_position) {
      const uint32 keys = stages + stage * STAGE_BYTES;
      rows.multiply_keys(keys + key_operand_offset(lane), [](int) {});
      settle(t);
      rows.multiply_values(keys + KEY_TILE_BYTES + value_operand_offset(lane), [&](int k) {
#pragma unroll
        for (int i = 0; i < 4 * ROW_TILES; i++) rows.weigh(4 * ROW_TILES * k + i, factor);
      });
      if (FOLDS_PARTS && (t == range.begin || t % max(PART_TILES, 1) == 0)) {
        rows.finish([](int, int) { return NEGATIVE_INFINITY; });
        fold.add(rows);
        rows.start_anew();
      }
    }
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  wait_copies<0>();
  if (!works) return;
  const auto head_of = [&](int m, int h) {
    return kv_head * GROUP_SIZE + row_of(16 * m + 8 * h + lane_row) % GROUP_SIZE;
  };
  if (FOLDS_PARTS) {
    fold.finish([&](int m, int h) { return sinks[head_of(m, h)]; });
  } else {
    rows.finish([&](int m, int h) { return load_sink(sinks, head_of(m, h)); });
  }
  const auto result = [&](int m, int n, int e) { return FOLDS_PARTS ? fold.sums[m][n][e] : rows.sums[m][n][e]; };

  const int64 split_rows = SPLIT_KEYS ? static_cast<int64>(blockIdx.y) * num_tokens * num_heads : 0;
  if (lse != nullptr && lane % 4 == 0) {
#pragma unroll
    for (int i = 0; i < 2 * ROW_TILES; i++) {
      const int row = warp_row + 8 * i + lane_row;
      if (row < tile.num_rows) {
        lse[split_rows + row_offset(row, num_heads, 1)] =
            FOLDS_PARTS ? fold.log_sum_exp(i / 2, i % 2) : rows.log_sum_exp(i / 2, i % 2);
      }
    }
  }
#if SPLIT_KEYS
  if (range.begin >= range.end) return;  // a weight of zero, so nobody reads it
#pragma unroll
  for (int i = 0; i < 2 * ROW_TILES; i++) {
    const int row = warp_row + 8 * i + lane_row;
    if (row >= tile.num_rows) break;
    float* to = partial_output + (split_rows + row_offset(row, num_heads, 1)) * HEAD_SIZE + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < DIM_COLUMNS; n++) {
      const float* pair = &rows.sums[i / 2][n][2 * (i % 2)];
      *reinterpret_cast<float2*>(to + 8 * n) = make_float2(pair[0], pair[1]);
    }
  }
#else
  // Through the place of this warp's queries, so that 16 bytes are written at a time.
  char* own = shared + warp * WARP_ROWS * ROW_BYTES;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2 * ROW_TILES; i++) {
#pragma unroll
    for (int n = 0; n < DIM_COLUMNS; n++) {
      *reinterpret_cast<uint32*>(own + n * QUERY_CHUNK_BYTES + (8 * i + lane_row) * ROW_BYTES + lane % 4 * 4) =
          pack_pair<Element>(result(i / 2, n, 2 * (i % 2)), result(i / 2, n, 2 * (i % 2) + 1));
    }
  }
  __syncwarp();
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    const int row = warp_row + 16 * m + copy_row;
    if (row >= tile.num_rows) continue;
    Element* to = output + row_offset(row, output_token_stride, output_head_stride) + copy_chunk * 8;
#pragma unroll
    for (int k = 0; k < DIM_STEPS; k++) {
      store_16(to + 16 * k, load_16(own + copy_at + 2 * k * QUERY_CHUNK_BYTES + m * 16 * ROW_BYTES));
    }
  }
#endif
}
