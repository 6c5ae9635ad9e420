// All layers of a decode step of a few sequences in one launch, for models whose weights are too large to wait in
// shared memory (persistent_decode.cu): RMSNorm, queries, keys and values, their norms and rotation, the paged
// cache and attention over it, the way out, a gated feed-forward.
//
// One thread block stays on every multiprocessor and takes its share of every product. A warp of it does nothing
// but bring weights into a ring in shared memory, product after product and layer after layer: they depend on
// nothing, so that the memory goes on while numbers are on their way. What a thread block makes it publishes
// (published.cuh), and whoever needs it waits for the numbers themselves; there is no barrier among thread blocks.
//
// Weights of 16 bits (whole_*.cuh) or, of one sequence, of few (few_bits_*.cuh), which have rings and products of
// their own; all else is the same.
//
//   from               to                            by
//   stream, norm       queries, keys, values         thread blocks with units of those rows
//   those, the cache   attended                      who has the token, KV head and split
//   attended           halfway: residual stream      thread blocks with units of its rows
//   halfway, norm      middle                        every thread block
//   middle             stream: residual stream       thread blocks with units of its rows
//
// With weights of 16 bits norms are in two halves, of which those with units of the stream do the first
// (layer_norms.cuh).
//
// PagedAttention: Kwon et al. 2023, arXiv 2309.06180. Rotation: Su et al. 2021, arXiv 2104.09864. The gated
// feed-forward: Shazeer 2020, arXiv 2002.05202.
//
// Needs all its thread blocks at the same time on the GPU.

#include "all_layers/layer_attention.cuh"
#include "all_layers/layer_products.cuh"
#if LAYER_KIND
#include "all_layers/few_bits_weights.cuh"
#else
#include "all_layers/layer_weights.cuh"
#endif
#include "common/dependent_launch.cuh"

// The work of the warps that multiply, once everything is prepared.
struct Work {
  Shared& shared;
  const Share& share;
  const Task& task;
  const int* positions;
  const int* block_table;
  const float2* rotations;
  int max_blocks, num_layers, first_layer;
  int64 key_stride, value_stride;
  float scale, epsilon, head_epsilon;

  // Of a layer, from the first launch on.
  __device__ __forceinline__ int number_of(int l) const {
#if LAYER_KIND
    return *const_cast<const volatile int*>(&shared.first_layer) + l;
#else
    return first_layer + l;
#endif
  }

  // Queries, keys and values of layer l, or those of them that are the product's.
  template <int PRODUCT>
  __device__ __forceinline__ void make_heads(const Element* hidden, Element* sets, int l, const Result& result,
                                             Reading& reading, float& carried) const {
    if (share.count(PRODUCT) == 0) return;
    const Layer& layer = shared.layers[l];
    const Published published(sets, number_of(l)), before(sets, number_of(l - 1) + SETS);
    QkvBias bias;
    StreamInput<PRODUCT> input;
    Taken<PRODUCT> taken;
    uint4 pieces[Order<PRODUCT>::PIECES];
    bias.load(layer, share, PRODUCT, result);
    input.load(layer);
    take_slot(taken, shared, reading, 0);
    input.collect(pieces, shared, before, l == 0 ? hidden : nullptr, epsilon);
    multiply_units<PRODUCT>(
        shared, reading, taken, HeldInput<PRODUCT>(pieces), share.count(PRODUCT),
        Finish<PRODUCT>{shared, share, published, bias, l, nullptr, carried, 0.0f, before, epsilon});
  }

  // What the norm behind layer l or half of it multiplies the thread's element of the stream by.
  __device__ __forceinline__ float weight_ahead(const Result& result, int l, bool halfway) const {
#if LAYER_KIND
    return 0.0f;
#else
    if (l == num_layers || result.unit >= share.num_stream) return 0.0f;
    const Layer& layer = shared.layers[l];
    const int column = (share.first_stream + result.unit) * UNIT + result.row;
    return weight_of_norm(halfway ? layer.mlp_norm : layer.attention_norm,
                          halfway ? layer.mlp_unit : layer.attention_unit, column);
#endif
  }

  __device__ __forceinline__ void run(Element* hidden, Element* sets) const {
    if (task.exists()) {
      look_up_context(shared.context, task, positions, block_table, rotations, key_stride, value_stride);
      sync_warps();
    }
    const Place place;
    const Result result(shared, place, 0);
    float carried = 0.0f;  // the residual stream at the thread's result
    const bool carries = result.unit < share.num_stream && result.token < TOKENS;
    if (carries) {
      const int at = result.token * HIDDEN + (share.first_stream + result.unit) * UNIT + result.row;
      carried = to_float(__ldcg(hidden + at));
    }
#if !LAYER_KIND
    if (share.num_stream > 0) {  // as if there were a layer before the first
      publish_stream(Published(sets, number_of(0) - 1 + SETS), false, result, carries,
                     share.first_stream + result.unit, carried, weight_ahead(result, 0, false));
    }
#endif
    Reading reading;
#pragma unroll 1
    for (int l = 0; l < num_layers; l++) {
      const Layer& layer = shared.layers[l];
      const Published published(sets, number_of(l));
      const QkvBias bias;
      make_heads<QKV>(hidden, sets, l, result, reading, carried);
      if constexpr (VALUES_APART) make_heads<VALUES>(hidden, sets, l, result, reading, carried);
      if (task.exists()) {
        attend(shared, layer, task, block_table, max_blocks, published, key_stride, value_stride, scale,
               head_epsilon);
      }
      if (share.num_stream > 0) {
        Taken<OUT> taken;
        uint4 pieces[Order<OUT>::PIECES];
        const float weight = weight_ahead(result, l, true);
        take_slot(taken, shared, reading, 0);
        collect_attended(pieces, shared, published);
        multiply_units<OUT>(
            shared, reading, taken, HeldInput<OUT>(pieces), share.num_stream,
            Finish<OUT>{shared, share, published, bias, l, nullptr, carried, weight, published, 0.0f});
      }
      {
        StreamInput<UP> input;
        Taken<UP> taken;
        uint4 pieces[Order<UP>::PIECES];
        input.load(layer);
        if (share.num_up > 0) take_slot(taken, shared, reading, 0);
        input.collect(pieces, shared, published, nullptr, epsilon);
        multiply_units<UP>(
            shared, reading, taken, HeldInput<UP>(pieces), share.num_up,
            Finish<UP>{shared, share, published, bias, l, nullptr, carried, 0.0f, published, epsilon});
        if (share.num_up == 0) sync_warps();  // no unit had a barrier
        // NOTE: marks go on once all warps have arrived; a lane that still waited for those of this layer would
        // never see them.
        __syncwarp();
        if (place.lane == 0) arrive(shared_address(&shared.collected));
      }
      if (share.num_stream > 0) {
        Element* const output = l + 1 == num_layers ? hidden : nullptr;
        const float weight = weight_ahead(result, l + 1, false);
        const Finish<DOWN> finish{shared, share, published, bias, l, output, carried, weight, published, 0.0f};
#if MIDDLE_IS_SHARED
        Taken<DOWN> taken;
        take_slot(taken, shared, reading, 0);
        collect_middle(shared, published);
        multiply_units<DOWN>(shared, reading, taken, SharedInput<DOWN>(shared), share.num_stream, finish);
#else
        multiply_by_slots(shared, reading, published.mine() + Published::MIDDLE_AT, share.num_stream, finish);
#endif
      }
    }
  }
};

// The work of the warp that marks.
__device__ __forceinline__ void mark_layers(Shared& shared, const Work& work, Element* sets) {
  const int num_tokens = work.task.exists() ? max(work.positions[work.task.token], 0) : 0;
  const int num_runs = list_runs(shared, work.share, work.task);
#pragma unroll 1
  for (int l = 0; l < work.num_layers; l++) {
    if (l > 0) wait(shared_address(&shared.collected), (l - 1) % 2);
    mark_runs(shared, num_runs, work.share, Published(sets, work.first_layer + l + MARKED_AHEAD));
    __threadfence();
    __syncwarp();
    if (threadIdx.x % WARP_SIZE == 0) arrive(shared_address(&shared.marked));
    if (l + 1 < work.num_layers) {
      prefetch_layer(shared.layers[l + 1], work.task, work.block_table, num_tokens, work.key_stride,
                     work.value_stride);
    }
  }
}

// A thread block's part of what the next launch reads first, on its way into the L2 cache while nothing else is
// asked of the memory any more: until that launch is there it would have nothing to do for some microseconds.
__device__ __forceinline__ void prefetch_share(const unsigned char* from, int bytes) {
  constexpr int PIECE_BYTES = 8192;
  if (from == nullptr || threadIdx.x % WARP_SIZE > 0) return;
  for (int at = blockIdx.x * PIECE_BYTES; at < bytes; at += NUM_BLOCKS * PIECE_BYTES) {
    prefetch_bulk(from + at, min(PIECE_BYTES, bytes - at));
  }
}

// Grid: (NUM_BLOCKS), NUM_THREADS + OTHER_THREADS threads, all at the same time; `Shared` is dynamic shared memory.
extern "C" __global__ void __launch_bounds__(NUM_THREADS + OTHER_THREADS, 1) streamed_layers(
    Element* hidden,                    // [TOKENS, HIDDEN]: the residual stream before all layers, then behind them
    Element* __restrict__ sets,         // [SETS, Published::ELEMENTS], NOT_THERE at first
    int* __restrict__ layers_done,      // [1]: by all launches so far, counted modulo SETS
    const Layer* __restrict__ layers,   // [num_layers]
    const Share* __restrict__ shares,   // [NUM_BLOCKS]
    const int* __restrict__ positions,  // [TOKENS]; below 0: padding, of which no key or value is written
    const int* __restrict__ block_tables,  // [TOKENS, max_blocks]
    const float2* __restrict__ rotations,  // [max_positions, HEAD_SIZE / 2] cosine and sine, with ROTARY
    int num_layers, int max_blocks, int64 key_block_stride, int64 value_block_stride,  // elements
    float scale, float epsilon, float head_epsilon,
    const unsigned char* __restrict__ following,  // what the next launch reads first, or null
    int following_bytes) {                        // of it, a multiple of 16
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int thread = threadIdx.x;
  let_next_kernel_start();
  if (thread == NUM_THREADS) {
    for (int i = 0; i < SLOTS; i++) {
      init_barrier(shared_address(&shared.filled[i]), COPYING_WARPS);
      init_barrier(shared_address(&shared.read[i]), NUM_WARPS);
    }
    init_barrier(shared_address(&shared.collected), NUM_WARPS);
    init_barrier(shared_address(&shared.marked), 1);
    publish_barriers();
  }
#if !LAYER_KIND
  // What lies behind the end of a row in a stage is multiplied by zeros, and has to be a number.
  for (int i = thread; i < static_cast<int>(sizeof(shared.ring) / 16); i += NUM_THREADS + OTHER_THREADS) {
    store_16(reinterpret_cast<uint4*>(shared.ring) + i, make_uint4(0, 0, 0, 0));
  }
  show_to_copies();
#endif
  const uint64* from = reinterpret_cast<const uint64*>(layers);
  uint64* to = reinterpret_cast<uint64*>(shared.layers);
  for (int i = thread; i < num_layers * static_cast<int>(sizeof(Layer) / sizeof(uint64));
       i += NUM_THREADS + OTHER_THREADS) {
    to[i] = from[i];
  }
#if LAYER_KIND
  // NOTE: in shared memory, since what is the same in all layers would be spilled, and there is little of a cache
  // that spills could stay in beside so much shared memory: a microsecond each time.
  if (thread == 0) shared.share = shares[blockIdx.x], shared.task = Task();
  const Share& share = shared.share;
  const Task& task = shared.task;
#else
  const Share share = shares[blockIdx.x];
#endif
  sync_all();
  if (thread >= NUM_THREADS) {
#if LAYER_KIND
    const int warp = thread / WARP_SIZE - NUM_WARPS;
    if (warp == 0) copy_weights<ROWS>(shared, share, num_layers), prefetch_share(following, following_bytes);
    if (warp == 1) copy_weights<SCALES>(shared, share, num_layers);
    if (warp < COPYING_WARPS) return;
#else
    if (thread < NUM_THREADS + WARP_SIZE) {
      copy_weights(shared, share, num_layers);
      prefetch_share(following, following_bytes);
    }
    if (thread / WARP_SIZE != NUM_WARPS + 1) return;
#endif
  }
  wait_for_previous_kernel();
#if !LAYER_KIND
  const Task task;
#endif
  const int first_layer = *layers_done;
  const int* block_table = block_tables + static_cast<int64>(task.token) * max_blocks;
  const Work work{shared,     share,       task,        positions,        block_table,        rotations,
                  max_blocks, num_layers,  first_layer, key_block_stride, value_block_stride, scale,
                  epsilon,    head_epsilon};
  if (thread >= NUM_THREADS) {
    mark_layers(shared, work, sets);
    return;
  }
#if LAYER_KIND
  if (thread == 0) shared.first_layer = first_layer;
  sync_warps();
#endif
  work.run(hidden, sets);
  if (blockIdx.x == 0 && thread == 0) *layers_done = (first_layer + num_layers) % SETS;
}
