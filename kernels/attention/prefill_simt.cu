// Prefill on CUDA cores: a varlen batch of query chunks against the cached tokens before each chunk and the chunk
// itself, causally.
//
//   output[t, h] = sum_k softmax_k(rule(query[t, h] . key[k])) value[k],   k the tokens that t sees
//
// For what tensor cores have no exact product for: float32, and bfloat16 on old GPUs. All arithmetic is float32. A
// thread block holds a tile of query rows (prefill_schedule.cuh) and walks over the tiles of keys, with an online
// softmax as in FlashAttention-2 (Dao 2023, arXiv 2307.08691).
//
// Both products are the same one (`multiply`): A B^T with the summed index innermost, in pieces of four, which is
// how the cache holds it, dimensions together for keys and tokens together for values. Keys and values take turns
// in one buffer: while a tile is worked on, the next one is on its way into registers.

#include "attention/scores.cuh"
#include "common/online_softmax.cuh"
#include "attention/prefill_schedule.cuh"
#include "attention/simt_rows.cuh"

#ifndef TILE_ROWS
#define TILE_ROWS (HEAD_SIZE > 128 ? 32 : 64)
#endif
#ifndef TILE_KEYS
#define TILE_KEYS (HEAD_SIZE > 128 ? 16 : HEAD_SIZE > 64 ? 32 : 64)
#endif

// Threads stand 8 x 16 on a product of theirs: thread (y, x) has rows y + 8 i and columns x + 16 j.
constexpr int ROW_THREADS = 8;
constexpr int COLUMN_THREADS = 16;
constexpr int NUM_THREADS = ROW_THREADS * COLUMN_THREADS;
constexpr int MY_ROWS = TILE_ROWS / ROW_THREADS;
constexpr int MY_KEYS = TILE_KEYS / COLUMN_THREADS;
constexpr int MY_DIMS = HEAD_SIZE / COLUMN_THREADS;
constexpr int PIECES_AT_ONCE = HEAD_SIZE > 64 && HEAD_SIZE <= 128 ? 2 : 1;  // of a product, as registers allow

constexpr int KEY_CHUNKS = HEAD_SIZE / ROW_ELEMENTS;  // 16-byte rows of a key
constexpr int KEY_ROWS = KEY_CHUNKS * TILE_KEYS;      // 16-byte rows of a tile, of keys and of values
constexpr int MY_CHUNKS = ceil_div(KEY_ROWS, NUM_THREADS);
constexpr int TOKEN_ROWS = TILE_KEYS / ROW_ELEMENTS;  // 16-byte rows of a dimension of values

// Float4s from one piece of the summed index to the next; odd, or even and no multiple of 4, so that neighbouring
// pieces are in different banks.
constexpr int VALUE_STRIDE = HEAD_SIZE + 1;
constexpr int WEIGHT_STRIDE = TILE_ROWS + 2;

struct Shared {
  float4 query[HEAD_SIZE / 4][TILE_ROWS];
  union {
    float4 keys[HEAD_SIZE / 4][TILE_KEYS];
    float4 values[TILE_KEYS / 4][VALUE_STRIDE];
  };
  float4 weights[TILE_KEYS / 4][WEIGHT_STRIDE];
};

__device__ __forceinline__ int thread_row() { return threadIdx.x / COLUMN_THREADS; }
__device__ __forceinline__ int thread_column() { return threadIdx.x % COLUMN_THREADS; }

// sums[i][j] += sum_k a[k][row i] . b[k][column j], k over `num_pieces` pieces of four.
template <int COLUMNS>
__device__ __forceinline__ void multiply(float (&sums)[MY_ROWS][COLUMNS], const float4* a, int a_stride,
                                         const float4* b, int b_stride, int num_pieces) {
  a += thread_row();
  b += thread_column();
#pragma unroll PIECES_AT_ONCE
  for (int k = 0; k < num_pieces; k++) {
    float4 left[MY_ROWS];
#pragma unroll
    for (int i = 0; i < MY_ROWS; i++) left[i] = a[k * a_stride + i * ROW_THREADS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      const float4 right = b[k * b_stride + j * COLUMN_THREADS];
#pragma unroll
      for (int i = 0; i < MY_ROWS; i++) {
        sums[i][j] += left[i].x * right.x;
        sums[i][j] += left[i].y * right.y;
        sums[i][j] += left[i].z * right.z;
        sums[i][j] += left[i].w * right.w;
      }
    }
  }
}

// The keys and values of one KV head of one sequence, and this thread's share of a tile on its way to shared
// memory.
struct Context {
  const Element* key_cache;    // [num_blocks, num_kv_heads, head_size / x, block_size, x], moved to the KV head
  const Element* value_cache;  // [num_blocks, num_kv_heads, head_size, block_size], moved to the KV head
  int64 key_stride;            // elements between blocks
  int64 value_stride;
  const int* block_table;  // [ceil(end / block_size)]
  int begin, end;          // tokens that any row of the thread block sees
  uint4 staged[MY_CHUNKS];

  // Tokens outside the range are read as its first or last; what comes of it is masked.
  __device__ __forceinline__ int clamped(int token) const { return min(max(token, begin), end - 1); }

  __device__ __forceinline__ int64 block_of(int token) const {
    return __ldg(block_table + clamped(token) / BLOCK_SIZE);
  }

  __device__ __forceinline__ static bool has(int i) {
    return KEY_ROWS % NUM_THREADS == 0 || i * NUM_THREADS + threadIdx.x < KEY_ROWS;
  }

  // A thread reads always the same token of a tile.
  __device__ __forceinline__ void load_keys(int first) {
    const int token = clamped(first + threadIdx.x % TILE_KEYS);
    const Element* from = key_cache + block_of(token) * key_stride +
                          (threadIdx.x / TILE_KEYS * BLOCK_SIZE + token % BLOCK_SIZE) * ROW_ELEMENTS;
#pragma unroll
    for (int i = 0; i < MY_CHUNKS; i++) {
      if (has(i)) staged[i] = load_16(from + i * (NUM_THREADS / TILE_KEYS) * BLOCK_SIZE * ROW_ELEMENTS);
    }
  }

  __device__ __forceinline__ void store_keys(Shared& shared) const {
    const int token = threadIdx.x % TILE_KEYS, chunk = threadIdx.x / TILE_KEYS;
#pragma unroll
    for (int i = 0; i < MY_CHUNKS; i++) {
      if (!has(i)) continue;
#pragma unroll
      for (int part = 0; part < ROW_FLOAT4S; part++) {
        shared.keys[(chunk + i * (NUM_THREADS / TILE_KEYS)) * ROW_FLOAT4S + part][token] =
            row_part(staged[i], part);
      }
    }
  }

  // A thread reads always the same ROW_ELEMENTS tokens of a tile.
  __device__ __forceinline__ void load_values(int first) {
    const int token = first + threadIdx.x % TOKEN_ROWS * ROW_ELEMENTS;
    const Element* from =
        value_cache + block_of(token) * value_stride + threadIdx.x / TOKEN_ROWS * BLOCK_SIZE + token % BLOCK_SIZE;
#pragma unroll
    for (int i = 0; i < MY_CHUNKS; i++) {
      if (has(i)) staged[i] = load_16(from + i * (NUM_THREADS / TOKEN_ROWS) * BLOCK_SIZE);
    }
  }

  __device__ __forceinline__ void store_values(Shared& shared, int first) const {
    const int row = threadIdx.x % TOKEN_ROWS, dim = threadIdx.x / TOKEN_ROWS;
    const RowMask mask(first + row * ROW_ELEMENTS, begin, end);
#pragma unroll
    for (int i = 0; i < MY_CHUNKS; i++) {
      if (!has(i)) continue;
      const uint4 seen = mask(staged[i]);
#pragma unroll
      for (int part = 0; part < ROW_FLOAT4S; part++) {
        shared.values[row * ROW_FLOAT4S + part][dim + i * (NUM_THREADS / TOKEN_ROWS)] = row_part(seen, part);
      }
    }
  }
};

// This thread's rows: their places in the text, softmax states and sums.
struct Rows {
  SoftmaxState state[MY_ROWS];  // m the same in all threads of a row, l of this thread's keys
  float output[MY_ROWS][MY_DIMS];
  float slope[MY_ROWS];
  int first_row;       // of the sequence's rows, the thread's first
  int first_position;  // of the chunk

  __device__ __forceinline__ Rows() : output{} {}

  __device__ __forceinline__ int row(int i) const { return first_row + i * ROW_THREADS; }
  __device__ __forceinline__ int position(int i) const { return first_position + row(i) / GROUP_SIZE; }

  // Scores -> weights; `first_key` is the position of the thread's first column.
  __device__ __forceinline__ void weigh(float (&scores)[MY_ROWS][MY_KEYS], const ScoreScale& scale, int first_key,
                                        int sliding_window, bool at_edge) {
#pragma unroll
    for (int i = 0; i < MY_ROWS; i++) {
      float top = NEGATIVE_INFINITY;
#pragma unroll
      for (int j = 0; j < MY_KEYS; j++) {
        const int key = first_key + j * COLUMN_THREADS;
        scores[i][j] = scale.score(scores[i][j], slope[i], key - position(i));
        if (at_edge && !sees(position(i), key, sliding_window)) scores[i][j] = NEGATIVE_INFINITY;
        top = fmaxf(top, scores[i][j]);
      }
      const float factor = state[i].raise(warp_max<COLUMN_THREADS / 2, 1>(top));
#pragma unroll
      for (int j = 0; j < MY_KEYS; j++) scores[i][j] = state[i].add(scores[i][j]);
#pragma unroll
      for (int j = 0; j < MY_DIMS; j++) output[i][j] *= factor;
    }
  }
};

__device__ __forceinline__ void store_weights(Shared& shared, const float (&weights)[MY_ROWS][MY_KEYS]) {
#pragma unroll
  for (int i = 0; i < MY_ROWS; i++) {
#pragma unroll
    for (int j = 0; j < MY_KEYS; j++) {
      const int key = thread_column() + j * COLUMN_THREADS;
      float4& piece = shared.weights[key / 4][thread_row() + i * ROW_THREADS];
      reinterpret_cast<float*>(&piece)[key % 4] = weights[i][j];
    }
  }
}

// Rows behind the last are zero.
__device__ __forceinline__ void load_query(Shared& shared, const Element* query, const QueryTile& tile,
                                           int64 token_stride, int64 head_stride) {
  for (int i = threadIdx.x; i < TILE_ROWS * KEY_CHUNKS; i += NUM_THREADS) {
    const int place = i % TILE_ROWS, chunk = i / TILE_ROWS;
    const int row = tile.first_row + place;
    uint4 bytes = make_uint4(0, 0, 0, 0);
    if (row < tile.num_rows) {
      bytes =
          load_16(query + row / GROUP_SIZE * token_stride + row % GROUP_SIZE * head_stride + chunk * ROW_ELEMENTS);
    }
#pragma unroll
    for (int part = 0; part < ROW_FLOAT4S; part++) {
      shared.query[chunk * ROW_FLOAT4S + part][place] = row_part(bytes, part);
    }
  }
}

// Grid: (num_kv_heads, total_rows / TILE_ROWS + num_seqs), 128 threads; total_rows = num_tokens * GROUP_SIZE
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    prefill_simt(Element* __restrict__ output,           // [num_tokens, num_heads, head_size], strided
                 float* __restrict__ lse,                // [num_tokens, num_heads], or null
                 const Element* __restrict__ query,      // [num_tokens, num_heads, head_size], strided
                 const Element* __restrict__ key_cache,  // [num_blocks, num_kv_heads, head_size / x, block_size, x]
                 const Element* __restrict__ value_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
                 const int* __restrict__ block_tables,     // [num_seqs, max_blocks_per_seq]
                 const int* __restrict__ seq_lens,         // [num_seqs]
                 const int* __restrict__ cu_seqlens_q,     // [num_seqs + 1]
                 const float* __restrict__ alibi_slopes,   // [num_heads], or null
                 const float* __restrict__ sinks,          // [num_heads], or null
                 int num_seqs, int max_blocks_per_seq, int num_kv_heads, int64 key_block_stride,
                 int64 value_block_stride,                             // elements
                 int64 query_token_stride, int64 query_head_stride,    // elements
                 int64 output_token_stride, int64 output_head_stride,  // elements
                 int sliding_window, float softmax_scale, float soft_cap) {
  extern __shared__ float4 dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const QueryTile tile = find_query_tile<TILE_ROWS>(cu_seqlens_q, num_seqs, blockIdx.y);
  if (tile.sequence < 0) return;

  const int64 first_token = cu_seqlens_q[tile.sequence];
  const int64 kv_head = blockIdx.x, first_head = kv_head * GROUP_SIZE;
  const int seq_len = seq_lens[tile.sequence];
  const int first_position = seq_len - tile.num_rows / GROUP_SIZE;
  const int last_row = min(tile.first_row + TILE_ROWS, tile.num_rows) - 1;
  const int lowest = first_position + tile.first_row / GROUP_SIZE, highest = first_position + last_row / GROUP_SIZE;

  Rows rows;
  rows.first_row = tile.first_row + thread_row();
  rows.first_position = first_position;
#pragma unroll
  for (int i = 0; i < MY_ROWS; i++) rows.slope[i] = load_slope(alibi_slopes, first_head + rows.row(i) % GROUP_SIZE);
  load_query(shared, query + first_token * query_token_stride + first_head * query_head_stride, tile,
             query_token_stride, query_head_stride);

  const int64 head_offset = kv_head * HEAD_SIZE * BLOCK_SIZE;
  Context context{key_cache + head_offset,
                  value_cache + head_offset,
                  key_block_stride,
                  value_block_stride,
                  block_tables + static_cast<int64>(tile.sequence) * max_blocks_per_seq,
                  first_seen(lowest, sliding_window),
                  highest + 1};
  const ScoreScale scale(softmax_scale, soft_cap);
  const KeyRange range = seen_tiles<TILE_KEYS>(lowest, highest, sliding_window);
  if (range.begin < range.end) context.load_keys(range.begin * TILE_KEYS);
  for (int t = range.begin; t < range.end; t++) {
    const int first = t * TILE_KEYS;
    __syncthreads();  // nobody reads the values of the tile before
    context.store_keys(shared);
    __syncthreads();
    context.load_values(first);
    float scores[MY_ROWS][MY_KEYS] = {};
    multiply(scores, shared.query[0], TILE_ROWS, shared.keys[0], TILE_KEYS, HEAD_SIZE / 4);
    const bool at_edge = first + TILE_KEYS - 1 > lowest || first <= highest - sliding_window;
    rows.weigh(scores, scale, first + thread_column(), sliding_window, at_edge);
    store_weights(shared, scores);
    __syncthreads();  // nobody reads the keys any more
    context.store_values(shared, first);
    if (t + 1 < range.end) context.load_keys(first + TILE_KEYS);
    __syncthreads();
    multiply(rows.output, shared.weights[0], WEIGHT_STRIDE, shared.values[0], VALUE_STRIDE, TILE_KEYS / 4);
  }

#pragma unroll
  for (int i = 0; i < MY_ROWS; i++) {
    rows.state[i].l = warp_sum<COLUMN_THREADS / 2, 1>(rows.state[i].l);
    if (rows.row(i) >= tile.num_rows) continue;
    const int64 token = first_token + rows.row(i) / GROUP_SIZE, head = first_head + rows.row(i) % GROUP_SIZE;
    Element* to = output + token * output_token_stride + head * output_head_stride + thread_column();
    const float shrink = SINKS ? rows.state[i].add_sink(load_sink(sinks, head)) : 1.0f;
    const float inverse = shrink * rows.state[i].inverse_sum();
#pragma unroll
    for (int j = 0; j < MY_DIMS; j++) to[j * COLUMN_THREADS] = from_float<Element>(rows.output[i][j] * inverse);
    if (lse != nullptr && thread_column() == 0) {
      lse[token * num_kv_heads * GROUP_SIZE + head] = rows.state[i].log_sum_exp();
    }
  }
}
