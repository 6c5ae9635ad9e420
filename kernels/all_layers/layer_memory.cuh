// Memory that the parts of streamed_layers.cu share: what is published and where, and a thread block's own.
//
// Sets of places are used in turn, layer by layer. While a layer is computed, those of the layer after the next are
// marked as not there yet by whoever will write them (`mark_layers`), so that a set is never looked at before all
// of it is marked, and never marked before all have read it:
//
// - A thread block marks when it has collected half a layer before. That half was published by thread blocks that
// had
//   the attention of all heads, which were published by those that had all queries, keys and values, and so on back
//   to what is marked, two layers ago.
// - It publishes its middle only when its marks are visible. Who looks at the marked set is two halves of a layer
//   further on, which nobody is without the middles of all.

#pragma once

#include "all_layers/layer_sizes.cuh"
#if LAYER_KIND
#include "all_layers/few_bits_digits.cuh"
#endif
#include "attention/decode_tiles.cuh"
#include "common/published.cuh"
#include "common/unit_sums.cuh"

constexpr int SETS = 4, MARKED_AHEAD = 2;  // layers

// What is published in a layer. Everything but queries, keys and values is there COPIES times, so that fewer thread
// blocks ask for the same line of memory. What is multiplied as it is lies in rows of whole stages, zeros behind
// their ends: who collects it need not ask what is there.
//
// With weights of 16 bits the residual stream is there weighed by the norm that is due (layer_norms.cuh), and the
// sums of squares of those who made it; with few bits as it is.
struct Published {
  Element* memory;

  static constexpr int STREAM_ROW = FEW_BITS_LAYERS ? HIDDEN : Order<UP>::PADDED;  // elements
  static constexpr int UNITS_OF_SUM = WARP_SIZE / UNIT;                            // which a warp has
  static constexpr int SUMS = ceil_div(STREAM_UNITS, UNITS_OF_SUM);                // of a thread block
  static constexpr int MAKERS =
      NUM_BLOCKS < HIDDEN / UNIT ? NUM_BLOCKS : HIDDEN / UNIT;  // of the stream: the first ones
  static constexpr int ROW_SUMS = round_up(MAKERS * SUMS, 4);   // of a token, floats
  static constexpr int LSE_STRIDE = round_up(NUM_HEADS, 8);     // floats between rows
  static constexpr int ATTENDED_AT = 0;
  static constexpr int LSE_AT = TOKENS * SPLITS * Order<OUT>::PADDED;
  static constexpr int HALFWAY_AT = LSE_AT + (SPLITS > 1 ? TOKENS * SPLITS * LSE_STRIDE * 2 : 0);
  static constexpr int MIDDLE_AT = HALFWAY_AT + TOKENS * STREAM_ROW;
  static constexpr int STREAM_AT = MIDDLE_AT + TOKENS * Order<DOWN>::PADDED;
  static constexpr int SQUARES_AT = STREAM_AT + TOKENS * STREAM_ROW;
  static constexpr int SQUARES = FEW_BITS_LAYERS ? 0 : 2 * TOKENS * ROW_SUMS;  // floats
  static constexpr int COPY = round_up(SQUARES_AT + 2 * SQUARES, 64);          // elements of a copy
  static constexpr int ELEMENTS = COPIES * COPY + TOKENS * QKV_ROWS;           // of a set

  // `layer` counts from the first launch on.
  __device__ __forceinline__ Published(Element* sets, int layer)
      : memory(sets + static_cast<int64>(layer % SETS) * ELEMENTS) {}

  __device__ __forceinline__ Element* copy(int i) const { return memory + i * COPY; }
  // Of all heads of a row of what is attended, as floats in units of log2.
  __device__ __forceinline__ uint32* lse(int i, int row) const {
    return reinterpret_cast<uint32*>(copy(i) + LSE_AT) + row * LSE_STRIDE;
  }
  // All sums of squares of a token, as floats: of the stream behind the layer, or halfway. Zeros where a thread
  // block has nothing of the stream.
  __device__ __forceinline__ uint32* squares(int i, bool halfway, int token) const {
    return reinterpret_cast<uint32*>(copy(i) + SQUARES_AT) + (halfway * TOKENS + token) * ROW_SUMS;
  }
  __device__ __forceinline__ Element* mine() const { return copy(blockIdx.x % COPIES); }  // which it reads
  __device__ __forceinline__ Element* qkv() const { return memory + COPIES * COPY; }      // [TOKENS, QKV_ROWS]
};

// Two neighbouring elements of a copy to every copy, by two lanes of which `odd` says which this is.
__device__ __forceinline__ void publish_copies(const Published& published, int at, uint32 word, bool odd) {
#pragma unroll
  for (int i = 0; i < COPIES; i += 2) {
    if (i + odd < COPIES) publish(reinterpret_cast<uint32*>(published.copy(i + odd) + at), word);
  }
}

// Neighbouring places of a thread block in a set, as elements.
struct Run {
  int at, count;
};
constexpr int MOST_RUNS = 2 + 2 * TOKENS + COPIES * (3 * TOKENS + 2);

constexpr int ROW_TILES = ceil_div(GROUP_SIZE, 8);
constexpr int OUTPUT_STRIDE = HEAD_SIZE + 4;  // floats; no bank conflicts

// Which token, KV head and split a thread block attends for; the last thread blocks do. Others have somebody's, so
// that it can be looked up.
struct Task {
  int index = NUM_BLOCKS - 1 - static_cast<int>(blockIdx.x), some = min(index, NUM_TASKS - 1);
  int token = some / (NUM_KV_HEADS * SPLITS), kv_head = some / SPLITS % NUM_KV_HEADS, split = some % SPLITS;

  __device__ __forceinline__ bool exists() const {  // of few bits registers are short
    return FEW_BITS_LAYERS ? blockIdx.x >= NUM_BLOCKS - NUM_TASKS : index < NUM_TASKS;
  }
  __device__ __forceinline__ int row() const { return token * SPLITS + split; }  // of what is attended
};

// What a task knows of its token and KV head; see `look_up_context`.
struct Context {
  int end;                   // tokens; 0 for padding
  int first_tile, end_tile;  // of the split
  int has_new;               // the newest token is in it
  int64 new_key, new_value;  // its places in a cache
  int64 head;                // where a KV head begins in a block
  float2 turn[HEAD_SIZE];    // of the elements of a vector: cosine and sine
};

// What the warps of a task leave for each other.
struct AttentionMemory {
  alignas(16) Element weights[NUM_WARPS][8 * ROW_TILES * WEIGHT_STRIDE];
  alignas(16) float output[NUM_WARPS][GROUP_SIZE][OUTPUT_STRIDE];
};

#if LAYER_KIND
constexpr bool GROUPED_WEIGHTS =  // some of them
    LAYER_KIND == INT4_WEIGHTS || QKV_KIND == INT4_WEIGHTS || VALUES_KIND == INT4_WEIGHTS;

// A unit's part in a slot, and the scales of it: of each run of its rows and then their minimums, or of its rows.
struct Slot {
  unsigned char rows[UNIT * SLOT_ROW_BYTES];
  __half scales[GROUPED_WEIGHTS ? 2 * UNIT * SLOT_RUNS : UNIT];
};

// A middle, by the warps that multiply by it: its pieces, and what digits of its runs are worth.
struct WarpInput {
  uint4 pieces[Order<DOWN>::PIECES * WARP_RUNS * 4];
  DigitWorth worth[Order<DOWN>::SLOTS_OF_ROW * WARP_RUNS];

  // Where lane q's piece i lies, counted run by run: those of a slot's runs beside each other.
  template <int PRODUCT>
  static __device__ __forceinline__ int at(int i, int q) {
    constexpr int RUN_PIECES = Order<PRODUCT>::RUN_PIECES;
    const int run = i / RUN_PIECES;
    return ((run / WARP_RUNS * RUN_PIECES + i % RUN_PIECES) * WARP_RUNS + run % WARP_RUNS) * 4 + q;
  }
};
#elif MIDDLE_IS_SHARED
// A middle in the order of the weights, by the warps that multiply by it: each piece of all tokens.
struct WarpInput {
  uint4 pieces[INPUT_PIECES * TOKENS * 4];

  // Where piece i of a token is for lanes q.
  static __device__ __forceinline__ int at(int i, int token, int q) { return (i * TOKENS + token) * 4 + q; }
};
#endif

#if MIDDLE_IS_SHARED
constexpr int OVERLAY_BYTES = sizeof(AttentionMemory) > NUM_WARPS * sizeof(WarpInput)
                                  ? sizeof(AttentionMemory)
                                  : NUM_WARPS * sizeof(WarpInput);
#else
constexpr int OVERLAY_BYTES = sizeof(AttentionMemory);
#endif

struct Shared {
#if LAYER_KIND
  alignas(128) Slot ring[SLOTS];
  Share share;
  Task task;
  int first_layer;
#else
  alignas(128) Element ring[SLOTS][SLOT_STAGES][UNIT * ROW_STRIDE];
#if TOKENS < 8
  alignas(16) uint4 exchange[NUM_WARPS][WARP_SIZE];  // pieces on their way from lane to lane
#endif
#endif
  // What attention leaves, or a middle. NOTE: between the last look at one and the first at the other lies a
  // barrier: in `collect_vectors`, and in the first product of the feed-forward.
  alignas(16) unsigned char overlay[OVERLAY_BYTES];
  alignas(16) float sums[2][NUM_WARPS][MOST_UNITS][TOKEN_ROWS];  // of a group of units; groups take turns
  alignas(16) Element vectors[VECTORS][HEAD_SIZE];               // of a KV head
  float top[NUM_WARPS][8 * ROW_TILES], total[NUM_WARPS][8 * ROW_TILES];
#if LAYER_KIND
  float squares[NUM_WARPS][TOKENS];
#else
  alignas(16) uint32 squares[TOKENS][Published::ROW_SUMS];  // of a norm that is due, floats
  // By which sums behind the norms before attention and the feed-forward are multiplied, of layers in turn.
  float factors[2][2][TOKENS];
#endif
  alignas(16) Layer layers[MAX_LAYERS];
  alignas(16) Context context;
  Run runs[MOST_RUNS];
  uint64 filled[SLOTS], read[SLOTS];  // of each slot of the ring
  uint64 collected, marked;           // a phase for each layer: half a layer has come; marks are visible
};

__device__ __forceinline__ AttentionMemory& attention_memory(Shared& shared) {
  return *reinterpret_cast<AttentionMemory*>(shared.overlay);
}
#if MIDDLE_IS_SHARED
__device__ __forceinline__ WarpInput& input_memory(Shared& shared, int warp) {
  return reinterpret_cast<WarpInput*>(shared.overlay)[warp];
}
#endif
