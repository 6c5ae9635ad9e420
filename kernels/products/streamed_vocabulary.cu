// The end of a decode step, as next_token.cu: the last norm and the product with the vocabulary, which streams
// through shared memory.

#include "products/best_rows.cuh"
#include "products/streamed_product.cuh"

struct VocabularyShared {
  StreamShared stream;
  BestShared<MAX_TOKENS> best;
};

// Grid: any number of thread blocks up to units, best one a multiprocessor; (NUM_WARPS + 1) * 32 threads;
// VocabularyShared is dynamic shared memory. The last unit of a vocabulary that is not whole units has rows of the
// one before it.
extern "C" __global__ void __launch_bounds__(NUM_THREADS + WARP_SIZE, 1)
    streamed_vocabulary(int* __restrict__ token_ids,  // as in NextTokens, up to `step`
                        int* __restrict__ positions, int* __restrict__ seq_lens, int* __restrict__ history,
                        int* __restrict__ step,
                        Element* __restrict__ logits,  // [num_tokens, vocab_size], or null
                        uint64* __restrict__ best,     // as in NextTokens
                        uint32* __restrict__ arrivals,
                        const void* __restrict__ weight,         // [vocab_size, IN_FEATURES], vocab_size at least 8
                        const Element* __restrict__ input_rows,  // [num_tokens, IN_FEATURES]
                        const Element* __restrict__ norm_weight,  // [IN_FEATURES], with NORM
                        const Element* __restrict__ norm_bias,    // [IN_FEATURES], or null
                        int num_tokens, int vocab_size, int history_len, float epsilon,
                        const __half* __restrict__ scales,      // of few bits: [vocab_size, ROW_GROUPS]
                        const __half* __restrict__ minimums) {  // the same, with MINIMUMS
  extern __shared__ __align__(128) unsigned char memory[];
  VocabularyShared& shared = *reinterpret_cast<VocabularyShared*>(memory);
  const int num_units = ceil_div(vocab_size, UNIT);
  const auto first_row = [=](int unit) { return min(unit * UNIT, vocab_size - UNIT); };
  if (threadIdx.x < MAX_TOKENS) shared.best.best[threadIdx.x] = 0;
  prepare_ring(shared.stream);
  if (copies_weights()) {
#if NORM
    fill_norm(shared.stream, norm_weight, norm_bias);
#endif
    fill_ring<1>(shared.stream, {weight, scales, minimums}, num_units,
                 [=](int unit, int) { return first_row(unit); });
    return;
  }
  const StreamPlace place;
  StreamInput input;
  take_input(input, shared.stream, place, input_rows, norm_bias != nullptr, num_tokens, epsilon);
  const OwnResult<UNIT> own;
  const auto row_of = [&](int group) { return first_row(unit_here(group * GROUP + own.unit)) + own.row; };
  RowScales row_scales;
  const auto fetch_scales = [&](int group) {
    if (own.exists(group, num_units, num_tokens)) row_scales.fetch(scales, row_of(group), row_of(group));
  };
  fetch_scales(threadIdx.x / TEAM);
  uint64 mine = 0;
  multiply_units(shared.stream, place, input, num_units, [&](int group) {
    if (!own.exists(group, num_units, num_tokens)) return;
    const int row = row_of(group);
    const Element value = from_float<Element>(own.total(shared.stream, group) * row_scales.of[0]);
    if (logits != nullptr) logits[static_cast<int64>(own.token) * vocab_size + row] = value;
    mine = max(mine, argmax_key(to_float(value), row));
    fetch_scales(group + NUM_TEAMS);
  });
  if (mine > 0) atomicMax(&shared.best.best[own.token], mine);
  const NextTokens next = {token_ids, positions, seq_lens, history, step, best, arrivals, num_tokens, history_len};
  take_next_tokens(next, shared.best, NUM_THREADS, [&] { place.sync_warps(); });
}
