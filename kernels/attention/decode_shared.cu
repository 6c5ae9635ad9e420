// Decode over a prefix of blocks that several sequences share: their keys and values are read once for all of them.
//
// The query heads of all members of a group that look at the same KV head are rows of the same products, as the
// heads of one sequence are in decode_split.cu. What comes out are partial states, one per split of the
// prefix, in the place where decode_split, launched next with `shared_lens`, merges them with each
// sequence's own part.
//
// Cascade inference (Ye et al. 2024) and Hydragen (Juravsky et al. 2024, arXiv 2402.05099) do the same for their
// caches; the merge is that of flash-decoding.

#ifndef TILE_PARTS
#define TILE_PARTS (HEAD_SIZE / 64)  // many rows need the registers
#endif
#include "attention/decode_merge.cuh"

#ifndef ROWS_PER_THREAD_BLOCK
#define ROWS_PER_THREAD_BLOCK MAX_ROWS
#endif
constexpr int ROWS = ROWS_PER_THREAD_BLOCK;

#if INPUT_IS_FRESH
#define FRESH_RESTRICT  // nothing may be read before the wait
#else
#define FRESH_RESTRICT __restrict__
#endif

// Some rows of a group: the query heads of its members that look at the same KV head are counted through.
struct RowBlock {
  int first_seq;  // of the group
  int first_row, num_rows;

  // Row blocks are counted through all groups; past the last one `num_rows` is 0.
  __device__ __forceinline__ RowBlock(const int* group_starts, int num_groups, int index) : num_rows(0) {
    for (int group = 0; group < num_groups; group++) {
      first_seq = group_starts[group];
      const int rows_of_group = (group_starts[group + 1] - first_seq) * GROUP_SIZE;
      const int blocks_of_group = ceil_div(rows_of_group, ROWS);
      first_row = index * ROWS;
      if (index < blocks_of_group) {
        num_rows = min(ROWS, rows_of_group - first_row);
        return;
      }
      index -= blocks_of_group;
    }
  }
};

// With INPUT_IS_FRESH the kernel before writes the query, and this one waits for it.
// Grid: (max_splits, num_kv_heads * row blocks of all groups, at most), NUM_WARPS * 32 threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS, 1) decode_shared(
    float* __restrict__ partial_output,       // [num_seqs, num_heads, max_parts, head_size]
    float2* __restrict__ partial_state,       // [num_seqs, num_heads, max_parts]
    const Element* FRESH_RESTRICT query,      // [num_seqs, num_heads, head_size], strided
    const Element* __restrict__ key_cache,    // [num_blocks, num_kv_heads, head_size / 8, block_size, 8]
    const Element* __restrict__ value_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    const int* __restrict__ block_tables,     // [num_seqs, max_blocks_per_seq]; the first member's row is read
    const int* __restrict__ seq_lens,         // [num_seqs]
    const int* __restrict__ shared_lens,      // [num_seqs], the same for all members of a group, 0: nothing shared
    const int* __restrict__ group_starts,     // [num_groups + 1]: the sequences of a group follow one another
    const float* __restrict__ alibi_slopes,   // [num_heads], or null
    int num_groups, int max_blocks_per_seq, int num_kv_heads, int max_parts, int64 key_block_stride,
    int64 value_block_stride,                           // elements
    int64 query_token_stride, int64 query_head_stride,  // elements
    int tiles_per_split, float scale, float cap) {
  __shared__ BlockShared<ROWS, ROWS> shared;
  const int split = blockIdx.x, kv_head = blockIdx.y % num_kv_heads;
  const RowBlock rows(group_starts, num_groups, blockIdx.y / num_kv_heads);
  // NOTE: the wait comes first. The next kernel reads the query without waiting, so all of this one must have.
  if (INPUT_IS_FRESH) wait_for_previous_kernel();
  let_next_kernel_start();
  const int first_seq = rows.first_seq, first_row = rows.first_row, num_rows = rows.num_rows;
  if (num_rows <= 0) return;
  const int num_heads = num_kv_heads * GROUP_SIZE;
  const auto seq_of = [&](int row) { return first_seq + (first_row + row) / GROUP_SIZE; };
  const auto head_of = [&](int row) { return kv_head * GROUP_SIZE + (first_row + row) % GROUP_SIZE; };

  const int shared_len = shared_lens[first_seq];
  const int* block_table = block_tables + static_cast<int64>(first_seq) * max_blocks_per_seq;
  const int warp_index = threadIdx.x / WARP_SIZE, my_first = split * tiles_per_split;
  DecodeWarp<ROWS / 8> warp;
  warp.read_table(block_table, max_blocks_per_seq, my_first + warp_index);
  warp.load_query([&](int row) -> const Element* {
    if (row >= num_rows) return nullptr;
    return query + seq_of(row) * query_token_stride + head_of(row) * query_head_stride;
  });
  const int end_tile = ceil_div(shared_len, TILE_TOKENS), my_end = min(my_first + tiles_per_split, end_tile);
  if (my_first >= end_tile) return;
#if ALIBI
#pragma unroll
  for (int i = 0; i < ROWS / 4; i++) {
    const int row = 8 * (i / 2) + 2 * warp.q + i % 2;
    const bool exists = row < num_rows;
    warp.slope[i / 2][i % 2] = exists ? load_slope(alibi_slopes, head_of(row)) : 0.0f;
    warp.query_position[i / 2][i % 2] = exists ? seq_lens[seq_of(row)] - 1 : 0;
  }
#endif
  const int64 head_offset = static_cast<int64>(kv_head) * HEAD_SIZE * BLOCK_SIZE;
  const PagedContext context{key_cache + head_offset,
                             value_cache + head_offset,
                             key_block_stride,
                             value_block_stride,
                             block_table,
                             max_blocks_per_seq,
                             0,
                             shared_len};
  warp.attend(context, ScoreScale(scale, cap), my_first + warp_index, my_end, NUM_WARPS,
              shared.warps[warp_index].weights);
  warp.finish();
  share_states(warp, shared);

  const Partials partials{partial_output, partial_state, max_parts};
  for_block_pieces(shared, num_rows, [&](int i, const Piece& piece) {
    const int row = i / ROW_PIECES;
    partials.store(seq_of(row) * num_heads + head_of(row), split, i % ROW_PIECES, piece);
  });
}
