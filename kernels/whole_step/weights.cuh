// Weights on their way into the shared memory of persistent_decode.cu: bulk copies by a warp of their own, a layer
// ahead of those that multiply.

#pragma once

#include "common/bulk_copy.cuh"
#include "whole_step/memory.cuh"

// Fills a slot that nobody reads any more.
template <int UNITS>
__device__ __forceinline__ void fill_into(Shared& shared, IntoSlot<UNITS>& slot, const Half& tensors, int half) {
  constexpr int ROW_BYTES = HIDDEN * sizeof(Element), CONSTANT_BYTES = UNIT * sizeof(RowConstants);
  const int lane = threadIdx.x % WARP_SIZE;
  const uint32 barrier = shared_address(&shared.into_filled[half]);
  int num_units = 0;
#pragma unroll
  for (int u = 0; u < UNITS; u++) num_units += Unit(half, u).exists;
  if (lane == 0) {
    expect_bytes(barrier, num_units * (UNIT * ROW_BYTES + CONSTANT_BYTES) + ROW_BYTES);
    copy_bulk(slot.scale, tensors.norm, ROW_BYTES, barrier);
  }
  __syncwarp();
#pragma unroll 1
  for (int row = lane; row < UNITS * UNIT; row += WARP_SIZE) {
    const Unit unit(half, row / UNIT);
    if (!unit.exists) continue;
    const int from = unit.row + row % UNIT;
    copy_bulk(slot.rows[row], tensors.into + static_cast<int64>(from) * HIDDEN, ROW_BYTES, barrier);
    if (row % UNIT == 0) copy_bulk(slot.constants + row, tensors.into_constants + from, CONSTANT_BYTES, barrier);
  }
}

template <int INNER>
__device__ __forceinline__ void fill_back(Shared& shared, BackSlot<INNER>& slot, const Half& tensors, int half) {
  constexpr int ROW_BYTES = INNER * sizeof(Element), BIAS_BYTES = UNIT * sizeof(Element);
  const int lane = threadIdx.x % WARP_SIZE, row = stream_unit() * UNIT;
  const uint32 barrier = shared_address(&shared.back_filled[half]);
  const bool biased = tensors.back_bias != nullptr;
  if (lane == 0) {
    expect_bytes(barrier, UNIT * ROW_BYTES + biased * BIAS_BYTES);
    if (biased) copy_bulk(slot.bias, tensors.back_bias + row, BIAS_BYTES, barrier);
  }
  __syncwarp();
  if (lane < UNIT) {
    copy_bulk(slot.rows[lane], tensors.back + static_cast<int64>(row + lane) * INNER, ROW_BYTES, barrier);
  }
}

// What comes first, before anything else happens: the work of the warp that copies, which needs nothing but itself.
// `first`: half of the first layer, which nobody has to look up; `layers`: the tensors of all of them.
__device__ __forceinline__ void fill_first(Shared& shared, const Half& first, const Layer* layers, int num_layers) {
  const bool leads = threadIdx.x % WARP_SIZE == 0;
  const uint32 barrier = shared_address(&shared.layers_filled), bytes = num_layers * sizeof(Layer);
  if (leads) {
    init_barrier(shared_address(&shared.into_filled[0]), 1);
    init_barrier(barrier, 1);
    show_to_copies();
  }
  __syncwarp();
  if (makes_qkv()) fill_into(shared, shared.slots.qkv, first, 0);
  if (!leads) return;
  expect_bytes(barrier, bytes);
  copy_bulk(shared.layers, layers, bytes, barrier);
}

// Where the numbers of a layer will be published, into the L2 cache: the launch before has pushed some of it out.
// The thread blocks share the work; of each a warp.
__device__ __forceinline__ void bring_places(const Published& published) {
  constexpr int LINE = 128, LINES = ceil_div(Published::ELEMENTS * static_cast<int>(sizeof(Element)), LINE);
  const char* first = reinterpret_cast<const char*>(published.memory);
#pragma unroll 1
  for (int i = blockIdx.x + threadIdx.x % WARP_SIZE * NUM_BLOCKS; i < LINES; i += WARP_SIZE * NUM_BLOCKS)
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(first + i * LINE) : "memory");
}

// Fills every slot for layer after layer, when all other warps have read what was there: the work of a warp, after
// `fill_first`, whose weights are in a hurry: the next ones are asked for when those are there.
//
// NOTE: a number that somebody waits for takes twice as long where weights come at the same time. So the weights of
// both halves are asked for in one go, where a layer waits longest: when what queries, keys and values are made of
// has come, and the next thing to come is attention. Who makes none says so where the layer begins.
__device__ __forceinline__ void fill_slots(Shared& shared, int num_layers, Element* memory) {
  const bool adds = stream_unit() >= 0, waits = IS_CLUSTERED || makes_qkv();
  bring_places(Published(memory, 0));
  wait(shared_address(&shared.layers_filled), 0);
#pragma unroll 1
  for (int i = 0; i < 2 * num_layers; i++) {
    const int half = i % 2, layer = i / 2;
    const uint32 parity = (layer + 1) % 2;  // of the layer before
    const Half& tensors = shared.layers[layer].halves[half];
    if (half == 0) {
      if (layer + 1 < num_layers) bring_places(Published(memory, layer + 1));
      if (layer > 0 && waits) wait(shared_address(&shared.into_read[0]), parity);
      if (makes_qkv()) {
        if (layer == 0) {
          wait(shared_address(&shared.into_filled[0]), 0);
        } else {
          fill_into(shared, shared.slots.qkv, tensors, 0);
        }
      }
    } else {
      if (layer > 0) wait(shared_address(&shared.into_read[1]), parity);
      if (layer > 0 && waits) wait(shared_address(&shared.begun), layer % 2);
      fill_into(shared, shared.slots.up, tensors, 1);
    }
    if (!adds) continue;
    if (layer > 0) wait(shared_address(&shared.back_read[half]), parity);
    if (half == 0) {
      fill_back(shared, shared.slots.out, tensors, 0);
    } else {
      fill_back(shared, shared.slots.down, tensors, 1);
    }
  }
}

// Before all other copies, by all warps that compute; a barrier comes after it. Biases that a model has not are not
// copied: they are zeros then.
__device__ __forceinline__ void prepare_slots(Shared& shared) {
  const int thread = threadIdx.x;
  if (thread < UNIT) {
    shared.slots.out.bias[thread] = shared.slots.down.bias[thread] = from_float<Element>(0.0f);
    show_to_copies();
  }
  if (thread % WARP_SIZE > 0) return;
#pragma unroll 1
  for (int i = thread / WARP_SIZE; i < RING; i += NUM_WARPS) {  // a warp for each: lanes would take turns
    init_barrier(shared_address(&shared.tile_filled[i]), 1);
    init_barrier(shared_address(&shared.tile_read[i]), PARTS * WARP_SIZE);
    if (i >= 2) continue;
    if (i == 1) init_barrier(shared_address(&shared.into_filled[i]), 1);
    if (i == 1) init_barrier(shared_address(&shared.begun), NUM_THREADS);
    init_barrier(shared_address(&shared.back_filled[i]), 1);
    init_barrier(shared_address(&shared.into_read[i]), NUM_THREADS);
    init_barrier(shared_address(&shared.back_read[i]), NUM_THREADS);
  }
  publish_barriers();
}
