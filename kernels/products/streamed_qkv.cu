// Queries, keys and values of a decode step, from the norm to their slots in the paged cache, as qkv_to_cache.cu,
// where the weight is so large that it streams through shared memory. Where values have another form than queries
// and keys they are a launch of their own beside the first one.
//
// With ROTARY a unit is 4 rows and the 4 that are turned with them, half of a head or of its turned part further
// on.

#include "products/head_places.cuh"
#include "products/streamed_product.cuh"

#ifndef ROTARY
#define ROTARY 0
#endif

constexpr int OUT_ROWS = ROTARY ? UNIT / 2 : UNIT;  // of a unit, one or two of which a thread finishes
constexpr int HEAD_RESULTS = ROTARY ? HALF_HEAD : HEAD_SIZE;
static_assert(HEAD_RESULTS % OUT_ROWS == 0, "a unit is in one head");

// What is result `index` of all heads: a row of the weight, or with ROTARY a pair of them.
struct ResultRows {
  int first, below = 0;  // rows
  bool are_turned = false;

  __device__ __forceinline__ ResultRows(int index) : first(index) {
#if ROTARY
    using Pairs = RowPairs<OUT_ROWS>;
    const int pair = index % HEAD_RESULTS;
    first = index / HEAD_RESULTS * HEAD_SIZE + Pairs::first(pair);
    below = Pairs::below(pair);
    are_turned = Pairs::are_turned(pair);
#endif
  }
};

// What this thread's result of a group is changed by, asked for before the result is there.
struct Changes {
  float shift[2] = {};
  float2 turn = {};  // cosine and sine
  RowScales scales;

  __device__ __forceinline__ void fetch(const Element* bias, const float2* rotations, int position,
                                        ResultRows rows) {
    if (bias != nullptr) {
      shift[0] = to_float(bias[rows.first]);
      if (ROTARY) shift[1] = to_float(bias[rows.first + rows.below]);
    }
    if (rows.are_turned && position >= 0) {
      turn = rotations[static_cast<int64>(position) * HALF_TURNED + rows.first % HEAD_SIZE];
    }
  }
};

// Grid: any number of thread blocks up to units, best one a multiprocessor; (NUM_WARPS + 1) * 32 threads;
// StreamShared is dynamic shared memory.
extern "C" __global__ void __launch_bounds__(NUM_THREADS + WARP_SIZE, 1) streamed_qkv(
    Element* __restrict__ query,              // [num_tokens, num_heads, HEAD_SIZE]
    Element* __restrict__ key_cache,          // [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8]
    Element* __restrict__ value_cache,        // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    const void* __restrict__ weight,          // [num_made * HEAD_SIZE, IN_FEATURES]
    const Element* __restrict__ bias,         // one for each row of `weight`, or null
    const Element* __restrict__ input_rows,   // [num_tokens, IN_FEATURES]
    const Element* __restrict__ norm_weight,  // [IN_FEATURES], with NORM
    const Element* __restrict__ norm_bias,    // [IN_FEATURES], or null
    const int* __restrict__ block_tables,     // [num_tokens, max_blocks_per_seq]
    const int* __restrict__ positions,        // [num_tokens]; below 0: the token is padding and is not written
    const float2* __restrict__ rotations,     // [max_positions, TURNED / 2] cosine and sine, with ROTARY
    int num_tokens, int num_heads, int num_kv_heads, int first_head, int num_made,  // heads of `weight`
    int max_blocks_per_seq, int64 key_block_stride,
    int64 value_block_stride,  // elements
    float epsilon,
    const __half* __restrict__ scales,      // of few bits: [rows of the weight, ROW_GROUPS]
    const __half* __restrict__ minimums) {  // the same, with MINIMUMS
  extern __shared__ __align__(128) unsigned char memory[];
  StreamShared& shared = *reinterpret_cast<StreamShared*>(memory);
  const int num_units = num_made * HEAD_SIZE / UNIT;
  prepare_ring(shared);
  if (copies_weights()) {
#if NORM
    fill_norm(shared, norm_weight, norm_bias);
#endif
    fill_ring<ROTARY + 1>(shared, {weight, scales, minimums}, num_units, [](int unit, int run) {
      const ResultRows rows(unit * OUT_ROWS);
      return rows.first + run * rows.below;
    });
    return;
  }
  const StreamPlace place;
  const OwnResult<OUT_ROWS> own;
  TokenSlot slot = {-1, 0};
  if (own.token < num_tokens) slot = slot_of(positions, block_tables, own.token, max_blocks_per_seq);
  Changes changes;
  const auto fetch_changes = [&](int group) {
    if (!own.exists(group, num_units, num_tokens)) return;
    const ResultRows rows(own.feature(group));
    changes.fetch(bias, rotations, slot.position, rows);
    changes.scales.fetch(scales, rows.first, rows.first + rows.below);
  };
  fetch_changes(threadIdx.x / TEAM);
  StreamInput input;
  take_input(input, shared, place, input_rows, norm_bias != nullptr, num_tokens, epsilon);
  const HeadPlaces places = {query,        key_cache,        value_cache,       num_heads,
                             num_kv_heads, key_block_stride, value_block_stride};
  multiply_units(shared, place, input, num_units, [&](int group) {
    if (!own.exists(group, num_units, num_tokens)) return;
    const ResultRows rows(own.feature(group));
    const int head = first_head + rows.first / HEAD_SIZE, dim = rows.first % HEAD_SIZE;
    float values[2] = {own.total(shared, group) * changes.scales.of[0] + changes.shift[0]};
#if ROTARY
    values[1] = own.total(shared, group, OUT_ROWS) * changes.scales.of[1] + changes.shift[1];
    if (rows.are_turned && places.is_turned(head) && slot.position >= 0) turn_pair(values, changes.turn);
    places.put(own.token, slot, head, dim + rows.below, values[1]);
#endif
    places.put(own.token, slot, head, dim, values[0]);
    fetch_changes(group + NUM_TEAMS);
  });
  end_launch();
}
