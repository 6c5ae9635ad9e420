// The layers of a thread block of persistent_decode.cu that multiplies: which product comes when, and when its
// weights are taken out of shared memory.

#pragma once

#include "whole_step/beginning.cuh"
#include "whole_step/products.cuh"

// Weights to registers, when they have come: of queries, keys and values, which are told to have been read later;
// of the middle; of a product that is added.
__device__ __forceinline__ void take_qkv(Into<QKV_UNITS>& into, Shared& shared, const Published& published,
                                         uint32 parity) {
  wait(shared_address(&shared.into_filled[0]), parity);
  into.load(shared.slots.qkv, QkvResult(shared, published).row);
}

// Those of the next layer. NOTE: where there is none, zeros: what is not made anew in every layer has registers for
// all of it.
__device__ __forceinline__ void take_next(Into<QKV_UNITS>& into, Shared& shared, const Published& published,
                                          int layer, bool is_last) {
  if (is_last) {
    into = {};
  } else {
    take_qkv(into, shared, published, (layer + 1) % 2);
  }
}

__device__ __forceinline__ void take_up(Into<UP_UNITS>& into, Shared& shared, const Published& published,
                                        uint32 parity) {
  wait(shared_address(&shared.into_filled[1]), parity);
  into.load(shared.slots.up, MiddleResult(published).row);
  tell_read(shared.into_read[1]);
}
template <int INNER>
__device__ __forceinline__ void take_back(Back<INNER>& back, Shared& shared, const BackSlot<INNER>& slot,
                                          const Published& published, int half, uint32 parity) {
  wait(shared_address(&shared.back_filled[half]), parity);
  back.load(slot, StreamResult(published, half).row);
  tell_read(shared.back_read[half]);
}

// Queries, keys and values, by the weights that are in `into`; `before`: the residual stream of the layer before.
__device__ __forceinline__ void produce_qkv(Shared& shared, const Element* before, const Published& published,
                                            const Into<QKV_UNITS>& into, int layer, float epsilon, int64 to_other) {
  const QkvResult result(shared, published);
  uint32 words[NORM_STEPS][2];
  if (layer == 0) {
    take_embeddings(words, shared);
  } else {
    collect<HIDDEN>(words, before);
  }
  if (!attends()) tell_read(shared.begun);
  tell_read(shared.into_read[0]);  // and not before, so that no weights come meanwhile, see `fill_slots`
  multiply(shared, into, words, 0);
  publish_into(shared, result, into, 0, epsilon, to_other);
}

// The middle, likewise. Ends in a barrier: who takes weights out of shared memory keeps those waiting who publish.
__device__ __forceinline__ void produce_middle(Shared& shared, const Published& published,
                                               const Into<UP_UNITS>& into, float epsilon, int64 to_other) {
  const MiddleResult result(published);
  uint32 words[NORM_STEPS][2];
  collect<HIDDEN>(words, published.stream(my_copy(), 0));
  multiply(shared, into, words, 1);
  publish_into(shared, result, into, 1, epsilon, to_other);
  sync_warps();
}

// A product that is added to the residual stream, by the weights that are in `back`. Ends in a barrier, likewise.
template <int INNER, typename Collect>
__device__ __forceinline__ void produce_back(Shared& shared, const Published& published, const Back<INNER>& back,
                                             int half, float& carried, int64 to_other, Collect collect_input) {
  const StreamResult result(published, half);
  uint32 words[steps_of(INNER)][2];
  collect_input(words);
  multiply_back<INNER>(shared, back, words);
  publish_back(shared, result, back.bias, carried, to_other);
  sync_warps();
}

// A layer of a thread block that multiplies, and MAKES queries, keys and values or not. `qkv`: the weights of
// those; then those of the next layer, if there is one.
//
// NOTE: weights are taken out of shared memory where there is time for it, which is before a look at what others
// have just begun to make. Behind a look that comes too early they keep the next one waiting.
template <bool MAKES>
__device__ __forceinline__ void produce_layer(Shared& shared, const Element* before, const Published& published,
                                              Into<QKV_UNITS>& qkv, float& carried, int layer, bool is_last,
                                              float epsilon, int64 to_other) {
  const bool adds = stream_unit() >= 0;
  const uint32 parity = layer % 2;
  if constexpr (MAKES) {
    produce_qkv(shared, before, published, qkv, layer, epsilon, to_other);
  } else {
    tell_read(shared.begun);
    tell_read(shared.into_read[0]);
  }
  Into<UP_UNITS> up;
  constexpr bool UP_COMES_LATE = IS_CLUSTERED && MAKES;  // who has no head has asked for theirs before
  if (!UP_COMES_LATE) take_up(up, shared, published, parity);
  if (adds) {
    Back<ATTENDED> out;
    take_back(out, shared, shared.slots.out, published, 0, parity);
    produce_back(shared, published, out, 0, carried, to_other,
                 [&](uint32(&words)[steps_of(ATTENDED)][2]) { collect_attended(words, published); });
  }
  if (UP_COMES_LATE) take_up(up, shared, published, parity);
  produce_middle(shared, published, up, epsilon, to_other);
  if (adds) {
    Back<MIDDLE> down;
    take_back(down, shared, shared.slots.down, published, 1, parity);
    produce_back(shared, published, down, 1, carried, to_other,
                 [&](uint32(&words)[steps_of(MIDDLE)][2]) { collect<MIDDLE>(words, published.middle(my_copy())); });
  }
  if (MAKES) take_next(qkv, shared, published, layer, is_last);
}

// The layers of a thread block that multiplies. NOTE: weights that are never taken would still have registers in
// a loop that might take them, hence a loop of its own for who MAKES queries, keys and values.
template <bool MAKES>
__device__ __forceinline__ void produce_layers(Shared& shared, Element* memory, const Embeddings& embeddings,
                                               int num_layers, float epsilon, int64 to_other) {
  float carried = 0.0f;  // the residual stream at the lane's result
  if (stream_unit() >= 0) {
    const StreamResult result(Published(memory, 0), 0);
    carried = embeddings.value(result.token, stream_unit() * UNIT + result.row);
  }
  Into<QKV_UNITS> qkv;
  if (MAKES) take_qkv(qkv, shared, Published(memory, 0), 0);
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    produce_layer<MAKES>(shared, Published(memory, l - 1).stream(my_copy(), 1), Published(memory, l), qkv, carried,
                         l, l + 1 == num_layers, epsilon, to_other);
  }
}
