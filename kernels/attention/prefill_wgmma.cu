// Causal attention of a varlen batch of query chunks over the paged cache, which holds the chunks' own keys and
// values too:
//
//   out[token, head] = softmax(mask(score(q k^T))) v
//
// for Hopper's warpgroup products (sm_90a). One warpgroup fetches, with cp.async, keys and values by way of the
// block table into rings of shared-memory tiles; CONSUMERS warpgroups of 64 query rows each compute. A consumer
// asks for the scores of tile i + 1 before the weighted values of tile i, so that its softmax runs beside the
// second product, and the consumers take turns at asking, so that one's softmax runs beside the other's products.
// The query heads of a group are rows of the same tile: keys and values are read once for all of them.
// FlashAttention-3: Shah et al. 2024, arXiv 2407.08608; paged cache: Kwon et al. 2023, arXiv 2309.06180; grouped
// heads: Ainslie et al. 2023, arXiv 2305.13245.

#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef TILE_KEYS
#define TILE_KEYS 128
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef QUERY_IN_REGISTERS
#define QUERY_IN_REGISTERS (CONSUMERS < 3 && HEAD_SIZE <= 128)
#endif
#define TILE_ROWS (64 * CONSUMERS)

#include "common/dependent_launch.cuh"
#include "common/mbarrier.cuh"
#include "common/mma.cuh"
#include "common/wgmma.cuh"
#include "attention/wgmma_copies.cuh"
#include "attention/wgmma_items.cuh"
#include "attention/wgmma_softmax.cuh"

constexpr int GROUP_THREADS = 4 * WARP_SIZE;  // of a warpgroup
constexpr int COPY_WARPS = 2;                 // for keys, and for queries and values
constexpr int THREADS = (CONSUMERS + 1) * GROUP_THREADS;

// 64 Ki registers: CONSUMERS * compute + copy <= 512.
constexpr int COPY_REGISTERS = CONSUMERS == 3 ? 32 : 40;
constexpr int COMPUTE_REGISTERS = CONSUMERS == 3 ? 160 : CONSUMERS == 2 ? 232 : 240;

// The shared memory: tiles, the items of this and the next turn, barriers. A tile is `full` when all copies into it
// are there, `empty` when every consuming warp is done with it.
constexpr int VALUES_AT = 0;  // aligned the most strictly
constexpr int KEYS_AT = STAGES * VALUE_BYTES;
constexpr int QUERIES_AT = KEYS_AT + STAGES * KEY_BYTES;
constexpr int SHARED_BYTES = QUERIES_AT + QUERY_BYTES;

struct Barriers {
  uint64 query_full, query_empty;
  uint64 key_full[STAGES], key_empty[STAGES], value_full[STAGES], value_empty[STAGES];
};

__shared__ Barriers barriers;
// Of the item that is stored, the one that is computed, and the one that is fetched; a power of two.
constexpr int ITEM_SLOTS = 4;
__shared__ Item items[ITEM_SLOTS];
extern __shared__ __align__(1024) unsigned char tiles[];

__device__ __forceinline__ void init_barriers() {
  constexpr int READERS = CONSUMERS * 4;  // warps
  constexpr int COPY_THREADS = COPY_WARPS * WARP_SIZE;
  init_barrier(shared_address(&barriers.query_full), COPY_THREADS);
  init_barrier(shared_address(&barriers.query_empty), READERS);
  for (int i = 0; i < STAGES; i++) {
    init_barrier(shared_address(&barriers.key_full[i]), COPY_THREADS);
    init_barrier(shared_address(&barriers.key_empty[i]), READERS);
    init_barrier(shared_address(&barriers.value_full[i]), COPY_THREADS);
    init_barrier(shared_address(&barriers.value_empty[i]), READERS);
  }
  publish_barriers();
}

struct Arguments {
  Element* output;
  float* lse;
  const Element *query, *key_cache, *value_cache;
  const int *block_tables, *seq_lens, *cu_seqlens_q;
  const float *alibi_slopes, *sinks;
  int num_seqs, num_kv_heads, max_blocks_per_seq;
  int64 query_token_stride, query_head_stride, output_token_stride, output_head_stride;
  float scale, cap;
  int sliding_window;
};

// --- the fetching warpgroup
// -------------------------------------------------------------------------------------------

// Two of its warps fetch keys, two fetch queries and values. Each waits for its own copies before it tells the
// consumers, because the fence between copies and products is then its business, not theirs.
__device__ __forceinline__ void announce(uint32 barrier) {
  commit_copies();
  wait_copies<0>();
  show_to_products();
  arrive(barrier);
}

struct Producer {
  const Arguments& a;
  int warp;  // of the two
  Ring<STAGES> ring;

  __device__ __forceinline__ TileCopy<COPY_WARPS> tile_copy(const Item& item) const {
    const int64 head = static_cast<int64>(item.kv_head) * CACHE_TILE;
    return {a.key_cache + head, a.value_cache + head, static_cast<int64>(a.num_kv_heads) * CACHE_TILE, warp};
  }

  __device__ __forceinline__ const int* block_table(const Item& item) const {
    return a.block_tables + static_cast<int64>(item.sequence) * a.max_blocks_per_seq;
  }

  __device__ __forceinline__ void run_keys() {
    ItemList list(a.cu_seqlens_q, a.seq_lens, a.num_seqs, a.num_kv_heads);
    for (Item item = list.next(); item.kv_head >= 0; item = list.next()) {
      const KeyRange range(item, a.sliding_window);
      const TileCopy<COPY_WARPS> copy = tile_copy(item);
      const int* table = block_table(item);
      int entries = tile_entries(table, range.last, range.end);
      for (int tile = range.last; tile >= range.first; tile--) {
        const int next_entries = tile > range.first ? tile_entries(table, tile - 1, range.end) : 0;
        wait(shared_address(&barriers.key_empty[ring.stage]), ring.parity ^ 1);
        copy.copy_keys(shared_address(tiles) + KEYS_AT + ring.stage * KEY_BYTES, entries, tile, range.end);
        announce(shared_address(&barriers.key_full[ring.stage]));
        ring.advance();
        entries = next_entries;
      }
    }
  }

  __device__ __forceinline__ void run_values() {
    ItemList list(a.cu_seqlens_q, a.seq_lens, a.num_seqs, a.num_kv_heads);
    for (int turn = 0;; turn++) {
      const Item item = list.next();
      fetch_queries(item, turn);
      if (item.kv_head < 0) return;
      const KeyRange range(item, a.sliding_window);
      const TileCopy<COPY_WARPS> copy = tile_copy(item);
      const int* table = block_table(item);
      int entries = tile_entries(table, range.last, range.end);
      for (int tile = range.last; tile >= range.first; tile--) {
        const int next_entries = tile > range.first ? tile_entries(table, tile - 1, range.end) : 0;
        wait(shared_address(&barriers.value_empty[ring.stage]), ring.parity ^ 1);
        copy.copy_values(shared_address(tiles) + VALUES_AT + ring.stage * VALUE_BYTES, entries, tile, range.end);
        announce(shared_address(&barriers.value_full[ring.stage]));
        ring.advance();
        entries = next_entries;
      }
    }
  }

  // The item itself and its queries; without an item only the news that there is none.
  __device__ __forceinline__ void fetch_queries(const Item& item, int turn) {
    const int thread = threadIdx.x % (COPY_WARPS * WARP_SIZE);
    wait(shared_address(&barriers.query_empty), turn % 2 ^ 1);
    if (thread == 0) items[turn % ITEM_SLOTS] = item;
    if (item.kv_head >= 0) {
      copy_queries<COPY_WARPS * WARP_SIZE>(shared_address(tiles) + QUERIES_AT, a.query, a.query_token_stride,
                                           a.query_head_stride, item, thread);
    }
    announce(shared_address(&barriers.query_full));
  }
};

// --- the computing warpgroups
// -----------------------------------------------------------------------------------------

// What a thread needs of its item while it walks over the keys.
struct Task {
  KeyRange range;
  int tile;        // of the keys
  int token[2];    // positions of the thread's rows
  float slope[2];  // of their heads

  Task() = default;
  // `first`: the first of the thread's rows, counted from the sequence's first.
  __device__ __forceinline__ Task(const Arguments& a, const Item& item, int first)
      : range(item, a.sliding_window),
        tile(range.last),
        token{item.context + first / GROUP_SIZE, item.context + (first + 8) / GROUP_SIZE},
        slope{load_slope(a.alibi_slopes, item.kv_head * GROUP_SIZE + first % GROUP_SIZE),
              load_slope(a.alibi_slopes, item.kv_head * GROUP_SIZE + (first + 8) % GROUP_SIZE)} {}

  __device__ __forceinline__ bool at_end() const { return tile == range.first; }
  __device__ __forceinline__ bool masked() const { return tile >= range.masked_from || tile <= range.masked_to; }
};

struct Consumer {
  float scores[TILE_KEYS / 2];
  uint32 weights[TILE_KEYS / 16][4];
  uint32 queries[HEAD_SIZE / 16][4];  // with QUERY_IN_REGISTERS
  float sums[HEAD_SIZE / 2];          // of the weighted values
  Ring<STAGES> key_ring, value_ring;
  int group;  // which of the computing warpgroups

  __device__ __forceinline__ void release(const uint64& barrier) {
    if (threadIdx.x % WARP_SIZE == 0) arrive(shared_address(&barrier));
  }

  // The consumers ask for products one after another.
  __device__ __forceinline__ void take_turn() {
    if (CONSUMERS > 1) sync_named(1 + group, 2 * GROUP_THREADS);
  }
  __device__ __forceinline__ void pass_turn() {
    if (CONSUMERS > 1) arrive_named(1 + (group + 1) % CONSUMERS, 2 * GROUP_THREADS);
  }

  __device__ __forceinline__ void await_keys() {
    wait(shared_address(&barriers.key_full[key_ring.stage]), key_ring.parity);
  }
  __device__ __forceinline__ void await_values() {
    wait(shared_address(&barriers.value_full[value_ring.stage]), value_ring.parity);
  }

  // The warp's 16 rows, as A operands. A matrix of ldmatrix is a core matrix.
  __device__ __forceinline__ void load_queries() {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x % GROUP_THREADS / WARP_SIZE;
    const int row = group * 64 + warp * 16 + lane % 16;
    const uint32 at = shared_address(tiles) + QUERIES_AT + lane / 16 * QUERY_CHUNK + row * PIECE;
#pragma unroll
    for (int i = 0; i < HEAD_SIZE / 16; i++) load_matrices(queries[i], at + 2 * i * QUERY_CHUNK);
    release(barriers.query_empty);
  }

  // scores = queries * keys^T
  __device__ __forceinline__ void start_scores() {
    const uint32 at = shared_address(tiles);
    const uint64 keys = matrix_descriptor(at + KEYS_AT + key_ring.stage * KEY_BYTES, KEY_CHUNK, 8 * PIECE);
    const uint64 rows = matrix_descriptor(at + QUERIES_AT + group * 64 * PIECE, QUERY_CHUNK, 8 * PIECE);
#pragma unroll
    for (int i = 0; i < HEAD_SIZE / 16; i++) {
      const uint64 columns = moved(keys, 2 * i * KEY_CHUNK);
      if (QUERY_IN_REGISTERS)
        Product<TILE_KEYS>::registers_shared(scores, queries[i], columns, i > 0);
      else
        Product<TILE_KEYS>::shared_shared(scores, moved(rows, 2 * i * QUERY_CHUNK), columns, i > 0);
    }
    commit_products();
  }

  // sums += weights * values
  __device__ __forceinline__ void start_sums() {
    const uint32 at = shared_address(tiles) + VALUES_AT + value_ring.stage * VALUE_BYTES;
    const uint64 values = matrix_descriptor(at, BLOCK_BYTES, 8 * VALUE_ROW, VALUE_ROW);
#pragma unroll
    for (int i = 0; i < TILE_KEYS / 16; i++) {
      const int block = i * 16 / BLOCK_SIZE, row_offset = i * 16 % BLOCK_SIZE * static_cast<int>(sizeof(Element));
      Product<HEAD_SIZE>::registers_shared(sums, weights[i], moved(values, block * BLOCK_BYTES + row_offset), true);
    }
    commit_products();
  }

  __device__ __forceinline__ void finish_keys() {
    settle(scores);
    release(barriers.key_empty[key_ring.stage]);
    key_ring.advance();
  }
  __device__ __forceinline__ void finish_values() {
    settle(sums);
    release(barriers.value_empty[value_ring.stage]);
    value_ring.advance();
  }

  // Raw scores of the task's key tile to weights.
  __device__ __forceinline__ void weigh(const Arguments& a, OnlineSoftmax& softmax, float (&decay)[2],
                                        const Task& task) {
    const ScoreScale scale(a.scale, a.cap);
    const int first_column = task.tile * TILE_KEYS + threadIdx.x % 4 * 2;
    const int position[2] = {task.token[0] - first_column, task.token[1] - first_column};
    finish_scores(scores, position, scale, task.slope);
    if (task.masked()) mask_scores(scores, position, a.sliding_window);
    softmax.step(scores, decay, FINISHED_SCORES ? 1.f : scale.dot);
  }

  // Takes up the item of this turn; false if there is none.
  __device__ __forceinline__ bool open_item(const Arguments& a, int turn, Task& task) {
    wait(shared_address(&barriers.query_full), turn % 2);
    const Item& item = items[turn % ITEM_SLOTS];
    if (item.kv_head < 0) return false;
    task = Task(a, item, first_row(item));
    if (QUERY_IN_REGISTERS) load_queries();
    return true;
  }

  // Of the thread's rows g and g + 8: g, counted from the sequence's first.
  __device__ __forceinline__ int first_row(const Item& item) const {
    return item.first_row + group * 64 + threadIdx.x % GROUP_THREADS / WARP_SIZE * 16 + threadIdx.x % WARP_SIZE / 4;
  }

  __device__ __forceinline__ void run(const Arguments& a) {
    if (group == CONSUMERS - 1) pass_turn();
    Task task;
    int turn = 0;
    if (!open_item(a, turn, task)) return;
    OnlineSoftmax softmax;
    float decay[2];
    await_keys();
    fence_products();
    start_scores();
    wait_products<0>();
    finish_keys();
    if (!QUERY_IN_REGISTERS && task.at_end()) release(barriers.query_empty);
    weigh(a, softmax, decay, task);
    pack_weights(weights, scores);
    clear_sums();

    for (;;) {
      const bool closing = task.at_end();
      if (closing) {
        if (!open_item(a, ++turn, task)) break;
      } else {
        task.tile--;
      }
      await_keys();
      take_turn();
      fence_products();
      start_scores();
      await_values();
      fence_products();
      start_sums();
      pass_turn();
      wait_products<1>();
      finish_keys();
      if (!QUERY_IN_REGISTERS && task.at_end()) release(barriers.query_empty);
      if (closing) {
        wait_products<0>();
        settle(sums);
        store(a, items[(turn - 1) % ITEM_SLOTS], softmax);
        softmax = OnlineSoftmax();
        clear_sums();
      }
      weigh(a, softmax, decay, task);
      hold_waits(softmax.sum[0] + softmax.sum[1]);
      wait_products<0>();
      finish_values();
#pragma unroll
      for (int i = 0; i < HEAD_SIZE / 2; i++) sums[i] *= decay[i / 2 % 2];
      pack_weights(weights, scores);
    }
    await_values();
    fence_products();
    start_sums();
    wait_products<0>();
    finish_values();
    store(a, items[(turn - 1) % ITEM_SLOTS], softmax);
  }

  __device__ __forceinline__ void clear_sums() {
#pragma unroll
    for (int i = 0; i < HEAD_SIZE / 2; i++) sums[i] = 0.f;
  }

  // The rows that are the sequence's, as 16-byte pieces; and their log-sum-exp.
  __device__ __forceinline__ void store(const Arguments& a, const Item& item, const OnlineSoftmax& softmax) {
    const int first = first_row(item);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int place = first + 8 * i;
      const float total = warp_sum<2>(softmax.sum[i]);
#if !SINKS
      const float inverse = total > 0.f ? 1.f / total : 0.f;
#endif
      const int64 token = item.first_token + place / GROUP_SIZE;
      const int head = item.kv_head * GROUP_SIZE + place % GROUP_SIZE;
      const bool real = place < item.num_rows;
#if SINKS
      SoftmaxState state = {scaled_top(a, softmax, i), total};
      const float shrink = state.add_sink(load_sink(a.sinks, head));
      const float inverse = shrink * state.inverse_sum();
#endif
      Element* row = a.output + token * a.output_token_stride + head * a.output_head_stride;
      store_row(row, i, inverse, real);
      if (a.lse != nullptr && real && threadIdx.x % 4 == 0) {
#if !SINKS
        const SoftmaxState state = {scaled_top(a, softmax, i), total};
#endif
        a.lse[token * (a.num_kv_heads * GROUP_SIZE) + head] =
            state.l > 0.f ? state.log_sum_exp() : NEGATIVE_INFINITY;
      }
    }
  }

  // Of the thread's i-th row, in units of log2.
  __device__ __forceinline__ static float scaled_top(const Arguments& a, const OnlineSoftmax& softmax, int i) {
    return FINISHED_SCORES ? softmax.top[i] : softmax.top[i] * (a.scale * LOG2_E);
  }

  __device__ __forceinline__ void store_row(Element* row, int i, float inverse, bool real) {
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int base = 0; base < HEAD_SIZE / 8; base += 4) {
      uint32 v[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        if (base + j >= HEAD_SIZE / 8) break;
        const float* pair = sums + 4 * (base + j) + 2 * i;
        v[j] = pack_pair<Element>(pair[0] * inverse, pair[1] * inverse);
      }
      if (base + 4 <= HEAD_SIZE / 8) {
        transpose_quad(v);
        if (real) store_16(row + (base + lane) * 8, make_uint4(v[0], v[1], v[2], v[3]));
      } else if (real) {
#pragma unroll
        for (int j = 0; base + j < HEAD_SIZE / 8; j++)
          *reinterpret_cast<uint32*>(row + (base + j) * 8 + 2 * lane) = v[j];
      }
    }
  }
};

// Grid: (number of multiprocessors, or of items if that is less); block: (128 * (CONSUMERS + 1)).
extern "C" __global__ void __launch_bounds__(THREADS, 1) prefill_wgmma(
    Element* __restrict__ output,             // [num_tokens, num_heads, HEAD_SIZE], strided
    float* __restrict__ lse,                  // [num_tokens, num_heads], or null
    const Element* __restrict__ query,        // [num_tokens, num_heads, HEAD_SIZE], strided
    const Element* __restrict__ key_cache,    // [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8]
    const Element* __restrict__ value_cache,  // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const int* __restrict__ block_tables,     // [num_seqs, max_blocks_per_seq]
    const int* __restrict__ seq_lens,         // [num_seqs]
    const int* __restrict__ cu_seqlens_q,     // [num_seqs + 1]
    const float* __restrict__ alibi_slopes,   // [num_heads], or null
    const float* __restrict__ sinks,          // [num_heads], or null
    int num_seqs, int num_kv_heads, int max_blocks_per_seq,  //
    int64 output_token_stride, int64 output_head_stride,     // elements
    int64 query_token_stride, int64 query_head_stride,       // elements
    float scale, float cap, int sliding_window) {
  const Arguments a = {output,
                       lse,
                       query,
                       key_cache,
                       value_cache,
                       block_tables,
                       seq_lens,
                       cu_seqlens_q,
                       alibi_slopes,
                       sinks,
                       num_seqs,
                       num_kv_heads,
                       max_blocks_per_seq,
                       query_token_stride,
                       query_head_stride,
                       output_token_stride,
                       output_head_stride,
                       scale,
                       cap,
                       min(sliding_window, 1 << 30)};  // positions relative to a tile may be below 0
  let_next_kernel_start();
  if (threadIdx.x == 0) init_barriers();
  __syncthreads();
  wait_for_previous_kernel();
  // The warpgroup's number the same way for all lanes, as far as the compiler can see.
  const int warpgroup = __shfl_sync(FULL_WARP, threadIdx.x / GROUP_THREADS, 0);
  if (warpgroup == 0) {
    give_registers<COPY_REGISTERS>();
    const int warp = __shfl_sync(FULL_WARP, threadIdx.x / WARP_SIZE, 0);
    Producer producer = {a, warp % COPY_WARPS};
    if (warp < COPY_WARPS)
      producer.run_keys();
    else
      producer.run_values();
  } else {
    take_registers<COMPUTE_REGISTERS>();
    Consumer consumer;
    consumer.group = warpgroup - 1;
    consumer.run(a);
  }
}
