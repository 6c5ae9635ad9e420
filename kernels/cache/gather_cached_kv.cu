// Collect the keys and values of whole sequences from their blocks into plain tensors, sequences after one another.
//
// In the cache a *column* is 16 bytes of a head for all tokens of a block: BLOCK_SIZE rows of 16 bytes after one
// another, a token each in the keys, a few tokens of one element each in the values. A thread block takes some
// columns of one cache block through shared memory: in as they lie, out token by token. Values are transposed on
// the way, in squares that fit a thread's registers. So both sides of the copy are long runs of memory.
//
// Nobody tells a thread block which sequence is its own: sequence s is given those from
// cu_seq_lens[s] / BLOCK_SIZE + s on, which is room enough for its blocks and needs no prefix sum of block counts;
// those without a block have nothing to do.
//
// Constants: ELEMENT, HEAD_SIZE, BLOCK_SIZE.

#include "common/async_copy.cuh"
#include "common/row.cuh"

#ifndef THREADS
#define THREADS 128
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 1024
#endif

constexpr int COLUMNS_PER_HEAD = HEAD_SIZE / ROW_ELEMENTS;
constexpr int TILE_COLUMNS = TILE_ROWS / BLOCK_SIZE;
constexpr int SQUARES_PER_COLUMN = BLOCK_SIZE / ROW_ELEMENTS;

// Which sequence thread block `index` serves: the last one whose thread blocks begin at or before it.
__device__ int find_sequence(const int* cu_seq_lens, int num_seqs, int index) {
  int begun = 0;
  for (int first = 0; first < num_seqs; first += THREADS) {
    const int seq = first + threadIdx.x;
    begun += __syncthreads_count(seq < num_seqs && cu_seq_lens[seq] / BLOCK_SIZE + seq <= index);
  }
  return begun - 1;
}

// cache: num_columns columns, as they lie.
__device__ void load_columns(uint4* tile, const Element* cache, int num_columns) {
  for (int i = threadIdx.x; i < num_columns * BLOCK_SIZE; i += THREADS) {
    copy_16_async(tile + swizzled(i, i / BLOCK_SIZE), cache + i * ROW_ELEMENTS);
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
}

// output: [num_tokens, token_stride], of which num_columns columns are written.
__device__ void store_tokens(Element* output, const uint4* tile, bool is_value, int num_tokens, int num_columns,
                             int token_stride) {
  for (int i = threadIdx.x; i < num_columns * SQUARES_PER_COLUMN; i += THREADS) {
    const int column = i % num_columns;
    const int first_token = i / num_columns * ROW_ELEMENTS;
    // Rows of a square: of keys one a token, of values one an element.
    const int first_row = column * BLOCK_SIZE + (is_value ? first_token / ROW_ELEMENTS : first_token);
    const int step = is_value ? SQUARES_PER_COLUMN : 1;
    Row rows[ROW_ELEMENTS];
#pragma unroll
    for (int j = 0; j < ROW_ELEMENTS; j++) rows[j] = as_row(tile[swizzled(first_row + j * step, column)]);
    if (is_value) transpose(rows);
    Element* place = output + first_token * token_stride + column * ROW_ELEMENTS;
#pragma unroll
    for (int j = 0; j < ROW_ELEMENTS; j++) {
      if (first_token + j < num_tokens) store_16(place + j * token_stride, as_bytes(rows[j]));
    }
  }
}

// Grid: (num_tokens / BLOCK_SIZE + num_seqs, ceil(all_columns / TILE_COLUMNS), 2: keys, values).
// Block: (THREADS). all_columns = num_kv_heads * COLUMNS_PER_HEAD.
extern "C" __global__ void __launch_bounds__(THREADS) gather_cached_kv(
    Element* __restrict__ key,                // [num_tokens, num_kv_heads, HEAD_SIZE]
    Element* __restrict__ value,              // [num_tokens, num_kv_heads, HEAD_SIZE]
    const Element* __restrict__ key_cache,    // [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]
    const Element* __restrict__ value_cache,  // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const int* __restrict__ block_tables,     // [num_seqs, max_blocks_per_seq]
    const int* __restrict__ cu_seq_lens,      // [num_seqs + 1]
    int num_seqs, int num_kv_heads, int max_blocks_per_seq, int64 key_block_stride, int64 value_block_stride) {
  __shared__ uint4 tile[TILE_ROWS];
  const int seq = find_sequence(cu_seq_lens, num_seqs, blockIdx.x);
  const int seq_start = cu_seq_lens[seq];
  const int block_idx = blockIdx.x - (seq_start / BLOCK_SIZE + seq);
  const int num_tokens = min(BLOCK_SIZE, cu_seq_lens[seq + 1] - seq_start - block_idx * BLOCK_SIZE);
  if (num_tokens <= 0) return;

  const bool is_value = blockIdx.z == 1;
  const int first_column = blockIdx.y * TILE_COLUMNS;
  const int num_columns = min(TILE_COLUMNS, num_kv_heads * COLUMNS_PER_HEAD - first_column);
  const int64 block_id = block_tables[static_cast<int64>(seq) * max_blocks_per_seq + block_idx];
  const Element* block =
      is_value ? value_cache + block_id * value_block_stride : key_cache + block_id * key_block_stride;
  load_columns(tile, block + first_column * BLOCK_SIZE * ROW_ELEMENTS, num_columns);

  const int token_stride = num_kv_heads * HEAD_SIZE;
  const int64 first_token = seq_start + block_idx * BLOCK_SIZE;
  Element* output = (is_value ? value : key) + first_token * token_stride + first_column * ROW_ELEMENTS;
  store_tokens(output, tile, is_value, num_tokens, num_columns, token_stride);
}
