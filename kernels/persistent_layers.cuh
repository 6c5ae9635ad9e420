// The layers of a thread block of persistent_decode.cu that multiplies: which product comes when, and when its
// weights are taken out of shared memory.

#pragma once

#include "persistent_beginning.cuh"
#include "persistent_products.cuh"

// Weights of a half to registers, when they have come.
__device__ __forceinline__ void take_into(Into& into, Shared& shared, const Result& result, int half,
                                          uint32 parity) {
  wait(shared_address(&shared.into_filled[half]), parity);
  into.load(shared.slots.into[half], result);
}
template <int INNER>
__device__ __forceinline__ void take_back(Back<INNER>& back, Shared& shared, const BackSlot<INNER>& slot,
                                          const Result& result, int half, uint32 parity) {
  wait(shared_address(&shared.back_filled[half]), parity);
  back.load(slot, result);
  tell_read(shared.back_read[half]);
}

// Queries, keys and values, by the weights that are in `into`; `before`: the residual stream of the layer before.
__device__ __forceinline__ void produce_qkv(Shared& shared, const Element* before, const Published& published,
                                            const Into& into, int layer, float epsilon, int64 to_other) {
  const Result result(published, 0);
  uint32 words[NORM_STEPS][2];
  if (layer == 0) {
    take_embeddings(words, shared);
  } else {
    collect<HIDDEN>(words, before, [] {});
  }
  tell_read(shared.into_read[0]);  // and not before, so that no weights come meanwhile, see `fill_slots`
  multiply(shared, into, words, 0);
  publish_into(shared, result, into, 0, epsilon, to_other);
}

// The middle, likewise; `meanwhile()` as in `await_steps`.
template <typename Meanwhile>
__device__ __forceinline__ void produce_middle(Shared& shared, const Published& published, const Into& into,
                                               float epsilon, int64 to_other, Meanwhile meanwhile) {
  const Result result(published, 1);
  uint32 words[NORM_STEPS][2];
  collect<HIDDEN>(words, published.stream(my_copy(), 0), meanwhile);
  multiply(shared, into, words, 1);
  publish_into(shared, result, into, 1, epsilon, to_other);
}

// A product that is added to the residual stream, by the weights that are in `back`.
template <int INNER, typename Collect>
__device__ __forceinline__ void produce_back(Shared& shared, const Published& published, const Back<INNER>& back,
                                             int half, uint32& carried, int64 to_other, Collect collect_input) {
  const Result result = Result::of_stream(published, half);
  uint32 words[steps_of(INNER)][2];
  collect_input(words);
  multiply_back<INNER>(shared, back, words);
  publish_back(shared, result, back.bias, carried, to_other);
}

// A layer of a thread block that multiplies. `into`: weights of queries, keys and values; then those of the next
// layer, if there is one.
//
// NOTE: who has published and then takes weights out of shared memory before it looks for what comes next sees it
// later. So weights are taken while there is more time, or behind a look.
__device__ __forceinline__ void produce_layer(Shared& shared, const Element* before, const Published& published,
                                              Into& into, uint32& carried, int layer, bool is_last, float epsilon,
                                              int64 to_other) {
  const bool adds = producer_index() < HIDDEN / UNIT;
  const uint32 parity = layer % 2;
  produce_qkv(shared, before, published, into, layer, epsilon, to_other);
  take_into(into, shared, Result(published, 1), 1, parity);
  tell_read(shared.into_read[1]);
  Back<MIDDLE> down;
  if (adds) {
    Back<ATTENDED> out;
    take_back(out, shared, shared.slots.out, Result::of_stream(published, 0), 0, parity);
    produce_back(shared, published, out, 0, carried, to_other,
                 [&](uint32(&words)[steps_of(ATTENDED)][2]) { collect_attended(words, published); });
  }
  produce_middle(shared, published, into, epsilon, to_other, [&] {
    if (adds) take_back(down, shared, shared.slots.down, Result::of_stream(published, 1), 1, parity);
  });
  const auto take_next = [&] {
    if (!is_last) take_into(into, shared, Result(published, 0), 0, parity ^ 1);
  };
  if (!adds) return take_next();
  produce_back(shared, published, down, 1, carried, to_other, [&](uint32(&words)[steps_of(MIDDLE)][2]) {
    collect<MIDDLE>(words, published.middle(my_copy()), take_next);
  });
}

// The layers of a thread block that multiplies.
__device__ __forceinline__ void produce_layers(Shared& shared, Element* memory, const Embeddings& embeddings,
                                               int num_layers, float epsilon, int64 to_other) {
  uint32 carried = 0;  // the residual stream at the thread's results
  if (producer_index() < HIDDEN / UNIT) {
    const Result result = Result::of_stream(Published(memory, 0), 0);
    carried = embeddings.pair(result.token, producer_index() * UNIT + result.row);
  }
  Into into;
  take_into(into, shared, Result(Published(memory, 0), 0), 0, 0);
#pragma unroll 1
  for (int l = 0; l < num_layers; l++) {
    produce_layer(shared, Published(memory, l - 1).stream(my_copy(), 1), Published(memory, l), into, carried, l,
                  l + 1 == num_layers, epsilon, to_other);
  }
}
