// Write the keys and values of new tokens into their slots of the paged cache (PagedAttention, Kwon et al. 2023,
// arXiv 2309.06180).
//
// A *column* is 16 bytes of a token's head. A key's columns stay whole in the cache; a value lies transposed, each
// element BLOCK_SIZE elements from the next. One element of a sector of L2 costs as much to write as the sector
// does, and writing elements alone is all that a decode step can do (`reshape_and_cache`). A prefill brings tokens
// whose slots follow each other (`reshape_and_cache_runs`): a group of them that fills sectors of the value cache
// is transposed in registers, square by square, and written in whole sectors. Which tokens those are is read off
// the slots, so any slots at all are right in either kernel, and only the speed differs.
//
// Constants: ELEMENT, HEAD_SIZE, BLOCK_SIZE.

#include "common/dependent_launch.cuh"
#include "common/row.cuh"

// One side of the new tokens, keys or values, and the strides to walk through it, in elements.
struct Source {
  const Element* data;  // [num_tokens, num_kv_heads, HEAD_SIZE]
  int64 token_stride;
  int64 head_stride;

  // `index` counts elements over all heads of a token.
  __device__ const Element* element(int64 token, int index) const {
    return data + token * token_stride + index / HEAD_SIZE * head_stride + index % HEAD_SIZE;
  }

  __device__ uint4 column(int64 token, int column) const {
    return load_once(element(token, column * ROW_ELEMENTS));
  }
};

// One side of the cache.
struct Target {
  Element* data;
  int64 block_stride;

  __device__ Element* block(int64 slot) const { return data + slot / BLOCK_SIZE * block_stride; }

  // In `[num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]`; `column` counts over all heads of a token.
  __device__ void store_key(int64 slot, int column, uint4 row) const {
    store_16(block(slot) + (column * BLOCK_SIZE + static_cast<int>(slot % BLOCK_SIZE)) * ROW_ELEMENTS, row);
  }

  // In `[num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]`; `index` counts elements over all heads of a token.
  __device__ Element* value_place(int64 slot, int index) const {
    return block(slot) + index * BLOCK_SIZE + static_cast<int>(slot % BLOCK_SIZE);
  }
};

// --- tokens alone -----------------------------------------------------------------------------------------------

// Grid: (num_tokens, ceil(num_columns / blockDim.x), 2: keys, values). Block: any.
// num_columns = num_kv_heads * HEAD_SIZE / x.
extern "C" __global__ void reshape_and_cache(
    Element* __restrict__ key_cache,         // [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]
    Element* __restrict__ value_cache,       // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const Element* __restrict__ key,         // [num_tokens, num_kv_heads, HEAD_SIZE]
    const Element* __restrict__ value,       // [num_tokens, num_kv_heads, HEAD_SIZE]
    const int64* __restrict__ slot_mapping,  // [num_tokens], -1: skip
    int num_columns, int64 key_block_stride, int64 value_block_stride, int64 key_token_stride,
    int64 key_head_stride, int64 value_token_stride, int64 value_head_stride) {
  let_next_kernel_start();
  const int64 slot = slot_mapping[blockIdx.x];
  wait_for_previous_kernel();
  if (blockIdx.z == 0) {
    const Source source{key, key_token_stride, key_head_stride};
    const int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= num_columns) return;
    const uint4 row = source.column(blockIdx.x, column);
    if (slot >= 0) Target{key_cache, key_block_stride}.store_key(slot, column, row);
    return;
  }
  // Neighbouring lanes take neighbouring elements, so that a store goes to few lines of L2.
  const Source source{value, value_token_stride, value_head_stride};
  const int first = blockIdx.y * blockDim.x * ROW_ELEMENTS + threadIdx.x;
  Element elements[ROW_ELEMENTS];
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const int index = first + i * blockDim.x;
    if (index < num_columns * ROW_ELEMENTS) elements[i] = *source.element(blockIdx.x, index);
  }
  if (slot < 0) return;
  Element* places = Target{value_cache, value_block_stride}.value_place(slot, 0);
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
    const int index = first + i * blockDim.x;
    if (index < num_columns * ROW_ELEMENTS) places[index * BLOCK_SIZE] = elements[i];
  }
}

// --- runs of tokens ---------------------------------------------------------------------------------------------

constexpr int SECTOR_TOKENS = 32 / static_cast<int>(sizeof(Element));
constexpr int GROUP_TOKENS = SECTOR_TOKENS < BLOCK_SIZE ? SECTOR_TOKENS : BLOCK_SIZE;
constexpr int SQUARES_PER_GROUP = GROUP_TOKENS / ROW_ELEMENTS;  // of one column

constexpr int RUN_TOKENS = 32;   // of one thread block: one for each lane of the warp that sorts them
constexpr int RUN_COLUMNS = 16;  // of one thread block: 256 bytes of a token
constexpr int RUN_THREADS = RUN_TOKENS / ROW_ELEMENTS * RUN_COLUMNS;  // one for each square of a full run
constexpr int MAX_GROUPS = RUN_TOKENS / GROUP_TOKENS;
constexpr int TOKENS_TOGETHER = 4;  // of keys: 64 bytes of the cache at a time
constexpr int SINGLES_AT_ONCE = 8;  // elements that a thread reads before it writes them
constexpr int64 NO_SLOT = -1;

// The slots of a run and of its neighbours, as far as a group may reach.
struct Slots {
  static constexpr int BEFORE = GROUP_TOKENS - 1;
  static constexpr int COUNT = RUN_TOKENS + 2 * BEFORE;
  int64 slots[COUNT];

  // By all threads of the block.
  __device__ void load(const int64* slot_mapping, int first_token, int num_tokens) {
    for (int i = threadIdx.x; i < COUNT; i += RUN_THREADS) {
      const int token = first_token - BEFORE + i;
      slots[i] = token >= 0 && token < num_tokens ? slot_mapping[token] : NO_SLOT;
    }
  }

  // Of a token of the run, or of a neighbour.
  __device__ int64 operator[](int index) const { return slots[BEFORE + index]; }

  // Whether this token and its neighbours make a whole group, each in its place.
  __device__ bool in_group(int index) const {
    const int64 slot = (*this)[index];
    const int place = static_cast<int>(slot % GROUP_TOKENS);
    bool whole = slot >= 0;
    for (int i = 0; i < GROUP_TOKENS && whole; i++) whole = (*this)[index - place + i] == slot - place + i;
    return whole;
  }
};

// The tokens of a run, sorted by how their values are written.
struct Sorted {
  int groups[MAX_GROUPS];  // first tokens of whole groups; the others may belong to the run that follows
  int singles[RUN_TOKENS];
  int num_groups;
  int num_singles;

  // By the first warp, a lane a token.
  __device__ void sort(const Slots& slots) {
    const int token = threadIdx.x;
    const bool in_group = slots.in_group(token);
    const int count = append(groups, in_group && slots[token] % GROUP_TOKENS == 0, token);
    const int rest = append(singles, !in_group && slots[token] >= 0, token);
    if (token == 0) num_groups = count, num_singles = rest;
  }

 private:
  // The tokens that ask for it, in order; their number.
  __device__ static int append(int* list, bool wanted, int token) {
    const uint32 all = __ballot_sync(FULL_WARP, wanted);
    if (wanted) list[__popc(all & ((1u << token) - 1))] = token;
    return __popc(all);
  }
};

__device__ void store_keys(Target target, Source source, const Slots& slots, int first_token, int first_column,
                           int num_columns) {
  constexpr int ROWS_PER_THREAD = RUN_TOKENS * RUN_COLUMNS / RUN_THREADS;
  uint4 rows[ROWS_PER_THREAD];
#pragma unroll
  for (int pass = 0; pass < 2; pass++) {  // all reads, then all writes
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
      const int index =
          threadIdx.x + i * RUN_THREADS;  // [token / TOKENS_TOGETHER, column, token % TOKENS_TOGETHER]
      const int column = first_column + index / TOKENS_TOGETHER % RUN_COLUMNS;
      const int token = index / (TOKENS_TOGETHER * RUN_COLUMNS) * TOKENS_TOGETHER + index % TOKENS_TOGETHER;
      if (column >= num_columns || slots[token] < 0) continue;
      if (pass == 0) rows[i] = source.column(first_token + token, column);
      if (pass == 1) target.store_key(slots[token], column, rows[i]);
    }
  }
}

// One square of a whole group for each thread: rows of tokens become rows of the cache. Neighbouring lanes take the
// squares of one column, whose rows lie side by side in a sector.
__device__ void store_groups(Target target, Source source, const Slots& slots, const Sorted& sorted,
                             int first_token, int first_column, int num_columns) {
  const int square = threadIdx.x % SQUARES_PER_GROUP;
  const int column = first_column + threadIdx.x / SQUARES_PER_GROUP % RUN_COLUMNS;
  const int group = threadIdx.x / (SQUARES_PER_GROUP * RUN_COLUMNS);
  if (group >= sorted.num_groups || column >= num_columns) return;
  const int token = sorted.groups[group] + square * ROW_ELEMENTS;

  Row rows[ROW_ELEMENTS];
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) rows[i] = as_row(source.column(first_token + token + i, column));
  transpose(rows);
  Element* place = target.value_place(slots[token], column * ROW_ELEMENTS);
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) store_16(place + i * BLOCK_SIZE, as_bytes(rows[i]));
}

// Neighbouring lanes take neighbouring elements, as above.
__device__ void store_singles(Target target, Source source, const Slots& slots, const Sorted& sorted,
                              int first_token, int first_column, int num_columns) {
  constexpr int RUN_ELEMENTS = RUN_COLUMNS * ROW_ELEMENTS;
  const int first_element = first_column * ROW_ELEMENTS;
  const int num_elements = min(RUN_ELEMENTS, num_columns * ROW_ELEMENTS - first_element);
  const int end = sorted.num_singles * RUN_ELEMENTS;
  for (int first = threadIdx.x; first < end; first += SINGLES_AT_ONCE * RUN_THREADS) {
    Element elements[SINGLES_AT_ONCE];
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {  // all reads, then all writes
#pragma unroll
      for (int i = 0; i < SINGLES_AT_ONCE; i++) {
        const int index = first + i * RUN_THREADS;
        const int element = index % RUN_ELEMENTS;
        if (index >= end || element >= num_elements) continue;
        const int token = sorted.singles[index / RUN_ELEMENTS];
        if (pass == 0) elements[i] = *source.element(first_token + token, first_element + element);
        if (pass == 1) *target.value_place(slots[token], first_element + element) = elements[i];
      }
    }
  }
}

// Grid: (ceil(num_tokens / RUN_TOKENS), ceil(num_columns / RUN_COLUMNS), 2: keys, values). Block: (RUN_THREADS).
extern "C" __global__ void __launch_bounds__(RUN_THREADS) reshape_and_cache_runs(
    Element* __restrict__ key_cache,         // [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x]
    Element* __restrict__ value_cache,       // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const Element* __restrict__ key,         // [num_tokens, num_kv_heads, HEAD_SIZE]
    const Element* __restrict__ value,       // [num_tokens, num_kv_heads, HEAD_SIZE]
    const int64* __restrict__ slot_mapping,  // [num_tokens], -1: skip
    int num_tokens, int num_columns, int64 key_block_stride, int64 value_block_stride, int64 key_token_stride,
    int64 key_head_stride, int64 value_token_stride, int64 value_head_stride) {
  __shared__ Slots slots;
  __shared__ Sorted sorted;
  const int first_token = blockIdx.x * RUN_TOKENS;
  const int first_column = blockIdx.y * RUN_COLUMNS;
  let_next_kernel_start();
  slots.load(slot_mapping, first_token, num_tokens);
  __syncthreads();
  wait_for_previous_kernel();
  if (blockIdx.z == 0) {
    const Source source{key, key_token_stride, key_head_stride};
    store_keys({key_cache, key_block_stride}, source, slots, first_token, first_column, num_columns);
    return;
  }
  if (threadIdx.x < WARP_SIZE) sorted.sort(slots);
  __syncthreads();
  const Source source{value, value_token_stride, value_head_stride};
  const Target target{value_cache, value_block_stride};
  store_groups(target, source, slots, sorted, first_token, first_column, num_columns);
  store_singles(target, source, slots, sorted, first_token, first_column, num_columns);
}
