// A KV head of persistent_decode.cu in a cluster of thread blocks: each makes some of its queries, its key and its
// value and sends them to those that attend, from shared memory to shared memory, which takes a fifth of the time
// that a number takes through the L2 cache.
//
// What is sent for a layer cannot meet what somebody still reads of the layer before: between them lies the
// residual stream, which needs the middle of the layer before from all thread blocks, and those make it when they
// have read.

#pragma once

#include "whole_step/attention.cuh"
#include "whole_step/turn.cuh"

#if CLUSTER > 1

constexpr int MOST_CACHED = SHARES * NUM_WARPS * TILE_TOKENS;  // tokens of a context: each warp has one tile of it

// Before anybody sends, which is after `wait_for_cluster`. Who has no tile leaves what it has here: nothing.
__device__ __forceinline__ void prepare_cluster(Shared& shared) {
  const Place place;
  if (place.thread == 0) {
    init_barrier(shared_address(&shared.vectors_filled), 1);
    init_barrier(shared_address(&shared.part_filled), 1);
    publish_barriers();
  }
  for (int i = place.thread; i < STATES * HEAD_SIZE; i += NUM_THREADS) {
    (&shared.output[0][0][0])[i] = 0.0f;
    if (i % HEAD_SIZE == 0) shared.state[i / HEAD_SIZE][0] = make_float2(NEGATIVE_INFINITY, 0.0f);
  }
  announce_to_cluster();
}

// Until what others send in a layer is there, all `bytes` of it.
__device__ __forceinline__ void await_sent(uint64& barrier, uint32 bytes, int layer) {
  const uint32 address = shared_address(&barrier);
  if (Place().thread == 0) expect_bytes(address, bytes);
  wait(address, layer % 2);
}

// The output of the thread block's share of the context to the first of the cluster: the work of a warp.
__device__ __forceinline__ void send_part(Shared& shared) {
  const Place place;
  const MergedStates<NUM_WARPS> merged(shared, 0, 0, NEGATIVE_INFINITY, make_float2(0.0f, 0.0f));
  const auto send = [&](float& own, float value) { send_to(&own, &shared.part_filled, 0, value); };
  send(shared.output[NUM_WARPS][0][2 * place.lane], merged.output.x);
  send(shared.output[NUM_WARPS][0][2 * place.lane + 1], merged.output.y);
  if (place.lane > 0) return;
  send(shared.state[NUM_WARPS][0].x, merged.highest);
  send(shared.state[NUM_WARPS][0].y, merged.all);
}

// What the cluster makes of its head for a layer, by those of its thread blocks that attend; the first warp puts it
// together. `shared_by_two`: the context is longer than what one of them attends to.
__device__ __forceinline__ void attend_head(Shared& shared, const Published& published, const Column& column,
                                            const float2* rotations, FirstTile& first, int layer,
                                            bool shared_by_two, float scale, int64 to_other) {
  constexpr uint32 VECTOR_BYTES = VECTORS * HEAD_SIZE * sizeof(Element),
                   PART_BYTES = HEAD_SIZE * sizeof(float) + sizeof(float2);
  const bool leads = column.split == 0;
  await_sent(shared.vectors_filled, VECTOR_BYTES, layer);
  tell_read(shared.begun);
  if (!leads && !shared_by_two) return;
  rotate_vectors(shared, column, rotations);
  if (leads) score_new(shared, column, scale);
  if (first.exists) attend_tile(shared, first.tile, column.position - first.index * TILE_TOKENS, scale);
  if (leads) write_cache(shared, shared.layers[layer], column);
  sync_warps();
  if (Place().warp > 0) return;
  if (!leads) return send_part(shared);
  if (shared_by_two) await_sent(shared.part_filled, PART_BYTES, layer);
  publish_attended(shared, published, column, to_other);
}

// The layers of a thread block of a head that attends. Values take the registers that weights leave; they are in
// the L2 cache by then.
__device__ __forceinline__ void attend_layers(Shared& shared, Element* memory, const Column& column,
                                              const float2* rotations, int num_layers, float scale, float epsilon,
                                              int64 to_other) {
  if (column.position > MOST_CACHED) __trap();
  const bool shared_by_two = column.position > NUM_WARPS * TILE_TOKENS;
  FirstTile first(column);
  first.fetch_keys(shared.layers[0], column);
  first.prefetch_values(shared.layers[0], column);
  Into<QKV_UNITS> qkv;
  take_qkv(qkv, shared, Published(memory, 0), 0);
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    const Published published(memory, l);
    produce_qkv(shared, Published(memory, l - 1).stream(my_copy(), 1), published, qkv, l, epsilon, to_other);
    first.fetch_values(shared.layers[l], column);
    attend_head(shared, published, column, rotations, first, l, shared_by_two, scale * LOG2_E, to_other);
    sync_warps();  // the first warp publishes, and nobody is in its way
    if (l + 1 < num_layers) {
      first.fetch_keys(shared.layers[l + 1], column);
      first.prefetch_values(shared.layers[l + 1], column);
    }
    share_middle(shared, published, l, epsilon, to_other);
    take_next(qkv, shared, published, l, l + 1 == num_layers);
  }
}

#else
__device__ __forceinline__ void prepare_cluster(Shared&) {}
#endif
