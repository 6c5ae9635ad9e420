// A whole decode step of a few sequences in one launch: embedding, all layers, the vocabulary, the next tokens.
//
// One thread block stays on every multiprocessor and takes its share of every product. Between two products there
// is no launch and no barrier: what a thread block makes it publishes (published.cuh), and whoever needs it waits
// for the numbers themselves. Weights do not depend on anything: a warp of each thread block does nothing but bring
// them into shared memory, up to a layer ahead. Keys and values of older tokens are asked for half a layer ahead.
//
// A layer is twice the same: rows of a product behind a norm, then rows that are added to the residual stream.
//
//   from              to                            by
//   hidden, norm      qkv: queries, keys, values    every producer, or the cluster of a head
//   qkv, the cache    attended: attention           who has the token, KV head and split
//   attended          halfway: residual stream      producers with a unit of 8 rows
//   halfway, norm     middle                        every thread block
//   middle            hidden: residual stream       producers with a unit of 8 rows
//
// NOTE: what made it slow at first, and is so no longer. The code of a layer has to stay small: it is met by all
// warps at about the same time and only once in a layer, so what does not fit into the instruction cache comes from
// the L2 cache, ten cycles for an instruction. Hence one copy of everything in a loop over layers, and lanes that
// work side by side instead of unrolled loops. And loads come back in the order in which a
// multiprocessor has asked for them: behind weights from the memory a look at a published number takes as long as
// they do. Hence bulk copies, which go another way, and at a time when fewest wait (`fill_slots`).
//
// A screened step (SCREENED) wants no logits but the best ones: it reads a quantized copy of the head in 8-bit
// integers, half of the bytes, and then the few rows that may be the best.
//
// Needs all its thread blocks at the same time on the GPU.

#include "whole_step/candidates.cuh"
#include "whole_step/heads.cuh"

// Grid: (NUM_BLOCKS), NUM_WARPS * 32 + 32 threads, all at the same time; `Shared` is dynamic shared memory.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS + WARP_SIZE, 1) persistent_decode(
    int* __restrict__ token_ids,             // [num_tokens]: of this step, then of the next one
    int* __restrict__ positions,             // [num_tokens]: below 0: padding; moved on
    int* __restrict__ seq_lens,              // [num_tokens]: moved on, likewise
    int* __restrict__ history,               // [history_len, num_tokens]: the tokens of the last steps
    int* __restrict__ step,                  // [1]: moved on; says where in the history
    Element* __restrict__ logits,            // [num_tokens, vocab_size]; unused where screened
    uint64* __restrict__ best_of_all,        // two sets of [NUM_BLOCKS, num_tokens], zeros at first
    int* __restrict__ launches,              // [1]: counted; says which set of memory is published in
    Element* __restrict__ published_memory,  // two sets of `Published`, NOT_THERE at first
    const Layer* __restrict__ layers,        // [num_layers]
    const Element* __restrict__ first_norm,  // the beginning of the first layer, which
    const Element* __restrict__ first_into,  // nobody has to look up
    const RowConstants* __restrict__ first_constants,
    const Element* __restrict__ token_vectors,     // [., HIDDEN]
    const Element* __restrict__ position_vectors,  // [., HIDDEN], or null
    const float2* __restrict__ rotations,          // [., HEAD_SIZE / 2] cosine and sine, with ROTARY
    const Element* __restrict__ norm,              // [HIDDEN]
    const Element* __restrict__ shift,             // [HIDDEN], or null
    const Element* __restrict__ head,              // [vocab_size, HIDDEN]
    const int* __restrict__ block_tables,          // [num_tokens, max_blocks]
    int num_layers, int vocab_size, int max_blocks, int position_offset, int history_len, float scale,
    float epsilon,
    const QuantizedTile* __restrict__ quantized,  // [vocab_size / QUANTIZED_ROWS, rounded up]; see SCREENED
    float digit_scale) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  if (threadIdx.x >= NUM_THREADS) {
    fill_first(shared, {first_norm, first_into, first_constants}, layers, num_layers);
    announce_to_cluster();  // before it waits: who checks memory takes this for a barrier among all warps
    sync_all();
    wait_for_cluster();
    const bool odd = *launches & 1;
    fill_slots(shared, num_layers,
               published_memory + (odd ? static_cast<int64>(num_layers) * Published::ELEMENTS : 0));
#if SCREENED
    fill_ring(shared, quantized, vocab_size, num_layers);
#else
    fill_ring(shared, head, vocab_size, num_layers);
#endif
    return;
  }

  // What is looked up is asked for all at once, and only then waited for.
  StateBefore before = read_state(positions, seq_lens, step, launches);
  int tokens[NUM_TOKENS];
#pragma unroll
  for (int t = 0; t < NUM_TOKENS; t++) tokens[t] = token_ids[t];
  prepare_slots(shared);
  prepare_cluster(shared);
#if SCREENED
  prepare_screening(shared.screening);
#endif
  const Embeddings embeddings(token_vectors, position_vectors, tokens, before.positions, position_offset);
  if (makes_qkv()) bring_embeddings(shared, embeddings);
  if (threadIdx.x == 0) {
    before.at = before.step % history_len;
    shared.before = before;
  }
  sync_all();

  NormWeights last;  // asked for now, since it would take its time then
  last.load(norm, shift);
  const bool odd = before.launches & 1;
  const int64 set_elements = static_cast<int64>(num_layers) * Published::ELEMENTS;
  const int64 to_other = odd ? -set_elements : set_elements;
  Element* const memory = published_memory + (odd ? set_elements : 0);
  wait_for_cluster();
  if (attends()) {
    wait(shared_address(&shared.layers_filled), 0);
    const Column column(positions, block_tables, max_blocks);
    attend_layers(shared, memory, column, rotations, num_layers, scale, epsilon, to_other);
  } else if (!IS_CLUSTERED || makes_qkv()) {
    produce_layers<true>(shared, memory, embeddings, num_layers, epsilon, to_other);
  } else {
    produce_layers<false>(shared, memory, embeddings, num_layers, epsilon, to_other);
  }

  const Element* const rows = Published(memory, num_layers - 1).stream(my_copy(), 1);
#if SCREENED
  collect_normalised(shared, rows, last, epsilon, [&](int token, int element, uint32 pair) {
    keep_digits(shared, token, element, pair, digit_scale);
  });
  screen_vocabulary(shared, vocab_size, digit_scale);
  multiply_candidates(shared, head, vocab_size);
#else
  collect_normalised(shared, rows, last, epsilon, [](int, int, uint32) {});
  multiply_vocabulary(shared, logits, vocab_size);
#endif
  if (threadIdx.x >= WARP_SIZE) return;
  const uint64* const keys = publish_best(shared, best_of_all);
  if (blockIdx.x != CHOOSER) return;
  uint64 best[NUM_TOKENS];
  await_best(best, keys);
  if (threadIdx.x > 0) return;
  move_on(shared.before, best, token_ids, positions, seq_lens, history);
  *step = shared.before.step + 1;
  *launches = shared.before.launches + 1;
}
