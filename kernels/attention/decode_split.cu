// Decode: one query token per sequence against its cached keys and values, through its block table, with the
// sequence split over the grid.
//
//   output[s, h] = sum_t softmax_t(rule(query[s, h] . key[t])) value[t],   t over the tokens of sequence s
//
// All query heads of one KV head are rows of the same products (decode_tiles.cuh), so K and V are read once
// whatever the group size. Each thread block takes a run of 32-token tiles, its warps every NUM_WARPS-th of them. A
// sequence that fits into one thread block is written at once; otherwise each leaves its partial state in global
// memory and the last one to arrive merges all of them (decode_merge.cuh), so there is no second kernel to launch.
// The arrival counter wraps to zero by itself, which lets a CUDA graph replay the launch. On Hopper they are a
// cluster where there is room for all clusters (decode_gather.cuh), or hand over what they have
// (decode_handover.cuh).
//
// With `shared_lens` the first tokens of a sequence are somebody else's work: decode_shared.cu has put
// their partials in place, and this kernel attends to the rest and merges.
//
// PagedAttention: Kwon et al. 2023, arXiv 2309.06180. The split: flash-decoding, Dao et al. 2023.

#ifndef WRITES_NEW
#define WRITES_NEW 0  // 1: behind the query heads of a token lie its key and value heads, which are not cached yet
#endif
#if WRITES_NEW
#undef INPUT_IS_FRESH
#define INPUT_IS_FRESH 1  // what is written here must not be read as if nobody wrote it
#endif

#ifndef EVEN_SPLITS
#define EVEN_SPLITS \
  0  // 1: a sequence is shared out evenly among all of the grid, by tiles_per_split tiles at least
#endif
#ifndef WHOLE_CONTEXT
#define WHOLE_CONTEXT 0  // 1: neither a window nor a shared prefix; the first token is known before the length is
#endif
#ifndef HANDS_OVER
#define HANDS_OVER \
  0  // 1: all parts of a sequence come from here, and go to the one that merges by decode_handover.cuh
#endif

#include "attention/decode_gather.cuh"
#include "attention/decode_merge.cuh"
#if __CUDA_ARCH__ >= 900
#include "common/bulk_copy.cuh"
#endif
#if HANDS_OVER
#include "attention/decode_handover.cuh"
#endif
#if CACHE_KIND
#include "cache/byte_heads.cuh"
#endif

constexpr int ROWS = round_up(GROUP_SIZE, 8) < MAX_ROWS ? round_up(GROUP_SIZE, 8) : MAX_ROWS;
constexpr int ROW_BLOCKS = ceil_div(GROUP_SIZE, ROWS);  // thread blocks that share the heads of a large group
constexpr int ROWS_STORED = GROUP_SIZE < ROWS ? GROUP_SIZE : ROWS;

// NOTE: thread blocks on a multiprocessor at a time, which bounds the registers. Large thread blocks are for
// batches too small to fill the GPU, where all that counts is how soon one is done.
constexpr int RESIDENT_WARPS = HEAD_SIZE <= 64 && ROWS == 8                  ? 16
                               : CACHE_KIND && HEAD_SIZE <= 128 && ROWS == 8 ? 12
                                                                             : 8;
constexpr int MIN_THREAD_BLOCKS = NUM_WARPS >= 8 ? 1 : RESIDENT_WARPS / NUM_WARPS;

#if INPUT_IS_FRESH
#define FRESH_RESTRICT  // nothing may be read before the wait
#else
#define FRESH_RESTRICT __restrict__
#endif

#if WRITES_NEW
// By the one warp that is going to read it: the newest token's key and value into the cache.
__device__ __forceinline__ void write_new(const PagedContext& context, const Element* key, const Element* value,
                                          int position) {
  const int slot = position % BLOCK_SIZE;
  const int64 block = __ldg(context.block_table + position / BLOCK_SIZE);
  Cached* keys = const_cast<Cached*>(context.key_cache) + block * context.key_stride;
  Cached* values = const_cast<Cached*>(context.value_cache) + block * context.value_stride;
#if CACHE_KIND
  Head head;
  head.load(key);
  head.keep(keys, keys + context.scales_from_head, slot, true);
  head.load(value);
  head.keep(values, values + context.scales_from_head, slot, false);
#else
  const int lane = threadIdx.x % WARP_SIZE;
  for (int i = lane; i < KEY_ROWS; i += WARP_SIZE) {
    store_16(keys + (i * BLOCK_SIZE + slot) * 8, load_in_order(key + 8 * i));
  }
#pragma unroll
  for (int i = lane; i < HEAD_SIZE; i += WARP_SIZE) values[i * BLOCK_SIZE + slot] = __ldcg(value + i);
#endif
  __threadfence_block();
  __syncwarp();
}
#endif

// Whether a warp has its first tile under way before the kernel before has ended.
#define FETCHES_FIRST (INPUT_IS_FRESH && HEAD_SIZE <= 128)
static_assert(!FETCHES_FIRST || PIPELINED, "a whole tile fits into the registers");

#define ASKS_AHEAD (FETCHES_FIRST && __CUDA_ARCH__ >= 900)
#if ASKS_AHEAD
// By a warp: a tile of old tokens that lies in `blocks`, as far as the L2 cache.
template <typename Warp>
__device__ __forceinline__ void ask_for(const PagedContext& context, const int (&blocks)[TILE_BLOCKS]) {
  const int lane = threadIdx.x % WARP_SIZE;
  if (lane >= 2 * TILE_BLOCKS) return;
  const int64 block = Warp::block_of(blocks, lane / 2 * BLOCK_SIZE);
  prefetch_bulk(lane % 2 == 0 ? context.key_cache + block * context.key_stride
                              : context.value_cache + block * context.value_stride,
                HEAD_SIZE * BLOCK_SIZE * sizeof(Cached));
}
#endif

// With INPUT_IS_FRESH the kernel before writes the query and the newest keys and values, and this one waits for it.
// Grid: (max_splits, num_kv_heads * ROW_BLOCKS, num_seqs), NUM_WARPS * 32 threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS, MIN_THREAD_BLOCKS) decode_split(
    Element* __restrict__ output,              // [num_seqs, num_heads, head_size], strided
    float* __restrict__ lse,                   // [num_seqs, num_heads], or null
    float* __restrict__ partial_output,        // [num_seqs, num_heads, max_parts, head_size]
    float2* __restrict__ partial_state,        // [num_seqs, num_heads, max_parts], or as Handover has it
    uint32* __restrict__ arrivals,             // [num_seqs, num_kv_heads * ROW_BLOCKS], zero before and after
    const Element* FRESH_RESTRICT query,       // [num_seqs, num_heads, head_size], strided
    const Cached* FRESH_RESTRICT key_cache,    // [num_blocks, num_kv_heads, head_size / x, block_size, x]
    const Cached* FRESH_RESTRICT value_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    const int* __restrict__ block_tables,      // [num_seqs, max_blocks_per_seq]
    const int* __restrict__ seq_lens,          // [num_seqs]
    const int* __restrict__ shared_lens,       // [num_seqs] tokens done by decode_shared, or null
    const float* __restrict__ alibi_slopes,    // [num_heads], or null
    const float* __restrict__ sinks,           // [num_heads], or null
    int max_blocks_per_seq, int num_kv_heads, int max_parts, int64 key_block_stride,
    int64 value_block_stride,                             // elements
    int64 query_token_stride, int64 query_head_stride,    // elements
    int64 output_token_stride, int64 output_head_stride,  // elements
    int tiles_per_split, int shared_tiles_per_split, int sliding_window, int asks_ahead, float scale, float cap) {
  __shared__ BlockShared<ROWS_STORED, ROWS> shared;
#if GATHERS
  __shared__ Gathered<ROWS_STORED * ROW_PIECES> gathered;
  const bool gathers = cluster_size() > 1;
  if (gathers) gathered.announce();
#endif
  const int seq = blockIdx.z, split = blockIdx.x;
  const int kv_head = blockIdx.y / ROW_BLOCKS, row_block = blockIdx.y % ROW_BLOCKS;
  const int num_heads = num_kv_heads * GROUP_SIZE;
  const int first_head = kv_head * GROUP_SIZE + row_block * ROWS;
  const int num_rows = min(ROWS_STORED, GROUP_SIZE - row_block * ROWS);

  const auto slot_of = [&](int row) { return seq * num_heads + first_head + row; };
  const auto output_of = [&](int row) {
    return RowOutput{output + seq * output_token_stride + (first_head + row) * output_head_stride,
                     lse == nullptr ? nullptr : lse + slot_of(row), load_sink(sinks, first_head + row)};
  };

  const int* block_table = block_tables + static_cast<int64>(seq) * max_blocks_per_seq;
  const int warp_index = threadIdx.x / WARP_SIZE;
  DecodeWarp<ROWS / 8> warp;
  const int seq_len = seq_lens[seq];
#if WHOLE_CONTEXT
  const int shared_len = 0, begin = 0;
#else
  const int shared_len = shared_lens == nullptr ? 0 : shared_lens[seq];
  const int begin = max(shared_len, sliding_window > 0 ? seq_len - sliding_window : 0);
#endif
  const int first_tile = begin / TILE_TOKENS, end_tile = ceil_div(seq_len, TILE_TOKENS);
#if EVEN_SPLITS
  const int split_tiles = max(tiles_per_split, ceil_div(end_tile - first_tile, gridDim.x));
#else
  const int split_tiles = tiles_per_split;  // known before the length is
#endif
  const int my_first = first_tile + split * split_tiles;
  warp.read_table(block_table, max_blocks_per_seq, my_first + warp_index);
#if FETCHES_FIRST
  if (READS_AHEAD) warp.read_ahead(block_table, max_blocks_per_seq, my_first + warp_index + NUM_WARPS);
#endif
  const int my_end = min(my_first + split_tiles, end_tile);
  const int num_splits = max(1, ceil_div(end_tile - first_tile, split_tiles));
  const int64 head_offset = static_cast<int64>(kv_head) * HEAD_SIZE * BLOCK_SIZE;
  const PagedContext context{
      key_cache + head_offset,
      value_cache + head_offset,
      key_block_stride,
      value_block_stride,
      block_table,
      max_blocks_per_seq,
      begin,
      seq_len,
      (num_kv_heads - kv_head) * HEAD_SIZE * BLOCK_SIZE + kv_head * BLOCK_SIZE * static_cast<int64>(sizeof(Scale))};
#if INPUT_IS_FRESH
  // All tiles but the last one lie in the cache since steps before this one.
#if FETCHES_FIRST
  const int warp_tile = my_first + warp_index;
  const bool is_old = warp_tile < my_end && warp_tile < end_tile - 1;
  if (is_old) warp.fetch(context, warp_tile);
#if ASKS_AHEAD
  // The memory has something to do until the query is there. Elsewhere it has enough, of thread blocks to come.
  const int second = warp_tile + NUM_WARPS;
  if (asks_ahead && second < min(my_end, end_tile - 1)) {
    if (!READS_AHEAD) warp.read_ahead(block_table, max_blocks_per_seq, second);
    ask_for<decltype(warp)>(context, warp.later_blocks);
  }
#endif
#endif
  let_next_kernel_start();
  // The kernel that leaves shared parts has waited for those before it; what it leaves itself is needed at the end.
  if (WHOLE_CONTEXT || shared_lens == nullptr) wait_for_previous_kernel();
#endif
  warp.load_query([&](int row) -> const Element* {
    if (row >= num_rows) return nullptr;
    return query + seq * query_token_stride + (first_head + row) * query_head_stride;
  });
  if (split >= num_splits) {
#if GATHERS
    if (gathers) wait_for_cluster();
#endif
    return;
  }
  uint32* const arrived = arrivals + static_cast<int64>(seq) * gridDim.y + blockIdx.y;
#if HANDS_OVER
  uint32 before_me = 0;  // looked at when the tiles are done
  if (num_splits > 1 && threadIdx.x == 0) before_me = atomicInc(arrived, num_splits - 1);
#endif
  const int shared_parts = shared_len > 0 ? ceil_div(ceil_div(shared_len, TILE_TOKENS), shared_tiles_per_split) : 0;

#if ALIBI
#pragma unroll
  for (int i = 0; i < ROWS / 4; i++) {
    const int row = 8 * (i / 2) + 2 * warp.q + i % 2;
    warp.slope[i / 2][i % 2] = row < num_rows ? load_slope(alibi_slopes, first_head + row) : 0.0f;
    warp.query_position[i / 2][i % 2] = seq_len - 1;
  }
#endif
#if WRITES_NEW
  const bool has_last_tile = my_first < my_end && my_end == end_tile;
  if (has_last_tile && warp_index == (my_end - 1 - my_first) % NUM_WARPS) {
    const Element* key = query + seq * query_token_stride + (num_heads + kv_head) * HEAD_SIZE;
    write_new(context, key, key + num_kv_heads * HEAD_SIZE, seq_len - 1);
  }
#endif
#if FETCHES_FIRST
  if (!is_old && warp_tile < my_end) warp.fetch(context, warp_tile);
#endif
  warp.attend<FETCHES_FIRST>(context, ScoreScale(scale, cap), my_first + warp_index, my_end, NUM_WARPS,
                             shared.warps[warp_index].weights);
  warp.finish();
#if HANDS_OVER
  if (threadIdx.x == 0) shared.is_last = before_me == num_splits - 1;
#endif
  share_states(warp, shared);

  const auto write = [&](int i, const Piece& piece) {
    write_piece(output_of(i / ROW_PIECES), i % ROW_PIECES, piece);
  };
#if GATHERS
  if (gathers) wait_for_cluster();  // everybody has begun, and can be sent something
  if (gathers && num_splits > 1) {
    gathered.send(shared, split, num_splits, num_rows);
    wait_for_previous_kernel();
    gathered.merge(split, num_splits, num_rows * ROW_PIECES, write);
    return;
  }
#endif
#if HANDS_OVER
  const Handover partials{reinterpret_cast<uint4*>(partial_output), reinterpret_cast<uint2*>(partial_state),
                          max_parts};
#else
  const Partials partials{partial_output, partial_state, max_parts};
#endif
  if (num_splits == 1) {
    wait_for_previous_kernel();  // the one that leaves the shared parts
    for_block_pieces(shared, num_rows, [&](int i, Piece sum) {
#if !HANDS_OVER
#pragma unroll 4
      for (int part = 0; part < shared_parts; part++) {
        sum.merge(partials.load(slot_of(i / ROW_PIECES), part, i % ROW_PIECES));
      }
#endif
      write(i, sum);
    });
    return;
  }
  for_block_pieces(shared, num_rows, [&](int i, const Piece& piece) {
    partials.store(slot_of(i / ROW_PIECES), shared_parts + split, i % ROW_PIECES, piece);
  });
#if HANDS_OVER
  if (!shared.is_last) return;
#else
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) shared.is_last = atomicInc(arrived, num_splits - 1) == num_splits - 1;
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  wait_for_previous_kernel();
#endif
  merge_parts<BlockShared<ROWS_STORED, ROWS>::SHARERS>(partials, shared_parts + num_splits, num_rows, slot_of,
                                                       write);
}
