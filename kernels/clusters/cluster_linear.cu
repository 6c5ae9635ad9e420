// output = residual + activation(weight * input + bias) for up to 64 tokens and a weight of any size. PAIRED rows
// as in activation.cuh.
//
// A tile is 64 rows of the weight, or 128 of few bits, with TOKENS tokens. SLICES thread blocks of a cluster have a
// slice of its inner elements each, and SHARERS neighbouring tiles the same tokens, which one copy brings to all of
// them. Weights and tokens come by tensor maps, 64 inner elements at a time or 128 of 4 bits, into a ring in shared
// memory; the weights of a whole ring are on their way before the kernel before has ended (programmatic dependent
// launch). The ring is so small that two thread blocks find room on a multiprocessor: that of the next product
// fills its own while this one ends. Where there are no more thread blocks than multiprocessors it may be so large
// that each is alone on one, since two would come to one that is free and none to others (`cluster_plan.py`).
//
// Sums of a slice go straight from registers into the shared memory of the thread block that adds and finishes them
// (`st.async`), each 1 / SLICES of the tile: neither flags nor the L2 cache are in the way. They take the place of
// the chunks that were multiplied first; that those are free is told while the last ones are multiplied.
//
// Weights of few bits become 16 bits in the registers of the lane that needs them: they are the operand that
// products of warpgroups take from there (stored_chunk.cuh). The next chunk's bytes are read while this one's are
// multiplied. Tiles have twice the rows, for two warpgroups, so that tokens are no more of what is fetched than
// beside weights of 16 bits.

#define CLUSTER (SHARERS * SLICES)

#include "common/activation.cuh"
#include "common/bulk_copy.cuh"
#include "common/cluster.cuh"
#include "common/dependent_launch.cuh"
#include "common/row_pieces.cuh"
#include "common/swizzled_tiles.cuh"
#include "common/tensor_map.cuh"
#include "clusters/deferred_norm.cuh"
#include "clusters/stored_chunk.cuh"

constexpr int NUM_MULTIPLIERS = GROUPS * GROUP_THREADS,
              NUM_THREADS = NUM_MULTIPLIERS + WARP_SIZE;  // a warp fetches
constexpr int MULTIPLYING_WARPS = NUM_MULTIPLIERS / WARP_SIZE;
constexpr int COLUMNS = PAIRED ? ROWS / 2 : ROWS;  // of the output, of a tile, and rows that one copy brings

// A strip is what a warp has of eight tokens: 16 rows of the weight, 2 x 2 sums a lane. Strips are counted through
// the tile, those of the same tokens one after another, gates and their values side by side.
constexpr int STRIP = STRIP_ROWS * 8, STRIP_BYTES = WARP_SIZE * static_cast<int>(sizeof(float4));
constexpr int STRIPS = TOKENS / 8 * MULTIPLYING_WARPS;  // of the tile
constexpr int OWN_STRIPS = STRIPS / SLICES;             // that a thread block finishes
constexpr int WARP_STRIPS = ceil_div(OWN_STRIPS, MULTIPLYING_WARPS);
static_assert(STRIPS % SLICES == 0, "every thread block finishes equally many");
static_assert(OWN_STRIPS % MULTIPLYING_WARPS == 0 || MULTIPLYING_WARPS % OWN_STRIPS == 0,
              "a warp's rows are the same");
static_assert(!PAIRED || OWN_STRIPS % 2 == 0, "gates are where their values are");
static_assert(TOKENS % (8 * SHARERS) == 0, "whole matrices of tokens");
static_assert(!FEW_BITS || !(NORM_AHEAD || NORM_DUE), "there are no registers for a part in a norm");

constexpr int SHARED_TOKENS = TOKENS / SHARERS;  // that a thread block fetches, for all that share them

struct Stage {
  unsigned char weights[ROWS * WEIGHT_ROW], tokens[TOKEN_TILES][TOKENS * TILE_ROW];
};
constexpr int STAGE_STRIPS = static_cast<int>(sizeof(Stage)) / STRIP_BYTES;  // whose sums take the place of a stage
constexpr int SUM_STAGES = ceil_div(STRIPS, STAGE_STRIPS);                   // in whose place all sums come
static_assert(SLICES == 1 || SUM_STAGES <= STAGES, "there is room for the sums");
static_assert(OWN_STRIPS * STRIP * sizeof(Element) <= STAGES * sizeof(Stage), "and for the results");

#if SCALES
// NOTE: a stage is filled when its chunk has been multiplied, so that a piece STAGES chunks before is of no use
// then.
constexpr int SCALE_PLACES = STAGES / PIECE_CHUNKS + 2;
constexpr int FILLERS = 1 + WARP_SIZE;  // the copies of chunks, and lanes that copy scales
#else
constexpr int FILLERS = 1;
#endif

struct alignas(16) Shared {
  Stage stages[STAGES];
#if SCALES
  ScalePieces scales[SCALE_PLACES];
#endif
  uint64 filled[STAGES], emptied[STAGES];
  uint64 complete;            // all sums are there
  float row_factors[TOKENS];  // with NORM_DUE
};

__device__ __forceinline__ uint32 address_of(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// What a thread block multiplies, and what it finishes.
struct Part {
  const int chunks;  // of the tile's inner elements
  const int rank, share, slice;
  const int tile_column;   // the first of the output
  const int begin, count;  // chunks

  __device__ __forceinline__ explicit Part(int in_features)
      : chunks(ceil_div(in_features, INNER)),
        rank(blockIdx.x % CLUSTER),
        share(rank % SHARERS),
        slice(rank / SHARERS),
        tile_column((blockIdx.x / CLUSTER * SHARERS + share) * COLUMNS),
        begin(first_of(slice)),
        count(first_of(slice + 1) - begin) {}

  // A row of the tile, among those of the weight.
  __device__ __forceinline__ int weight_row(int row, int out_features) const {
    return tile_column + row + (PAIRED && row >= COLUMNS ? out_features - COLUMNS : 0);
  }

  __device__ __forceinline__ int first_of(int of_slice) const { return chunks * of_slice / SLICES; }

  // The stage of the ring that is free first, in the thread block of a slice.
  __device__ __forceinline__ int free_stage(int of_slice) const {
    return (first_of(of_slice + 1) - first_of(of_slice)) % STAGES;
  }

  // Where the first of a strip's rows of the weight is in the tile.
  static __device__ __forceinline__ int row_of(int strip) {
    const int i = strip % MULTIPLYING_WARPS;
    return STRIP_ROWS * (PAIRED ? i % 2 * (MULTIPLYING_WARPS / 2) + i / 2 : i);
  }
};

// --- one warp fetches, by its first lane ------------------------------------------------------------------------

struct Fetch {
  Shared& shared;
  const Part& part;
  const TensorMap &weight, &input;
  const int out_features;
#if SCALES
  const ScaleCopy scales;
#endif
  const bool leads = threadIdx.x % WARP_SIZE == 0;

  __device__ __forceinline__ void weights(int stage, int chunk) const {
    const uint32 barrier = address_of(shared.filled[stage]);
    if (leads) {
      const int column = (part.begin + chunk) * (WEIGHT_ROW / 2);  // in pairs of bytes
      unsigned char* to = shared.stages[stage].weights;
      expect_bytes(barrier, sizeof(Stage));
      copy_tile(to, weight, column, part.tile_column, barrier, pass_through_cache());
      if (PAIRED) {
        const int gated = out_features + part.tile_column;
        copy_tile(to + COLUMNS * WEIGHT_ROW, weight, column, gated, barrier, pass_through_cache());
      }
    }
#if SCALES
    const int number = part.begin + chunk;
    if (chunk == 0 || number % PIECE_CHUNKS == 0) {
      const int last = out_features * (1 + PAIRED) - 1;
      scales.copy(shared.scales[number / PIECE_CHUNKS % SCALE_PLACES], number,
                  [&](int row) { return min(part.weight_row(row, out_features), last); });
    }
    arrive_when_copied(barrier);
#endif
  }
  __device__ __forceinline__ void tokens(int stage, int chunk) const {
    const uint32 barrier = address_of(shared.filled[stage]);
#pragma unroll
    for (int i = 0; i < TOKEN_TILES; i++) {
      const int column = (part.begin + chunk) * INNER + i * TILE_INNER;
      unsigned char* to = shared.stages[stage].tokens[i];
      if (SHARERS == 1) {
        copy_tile(to, input, column, 0, barrier);
      } else {
        const int first = part.share * SHARED_TOKENS, all = ((1 << SHARERS) - 1) << part.slice * SHARERS;
        copy_tile_to_all(to + first * TILE_ROW, input, column, first, barrier, all);
      }
    }
  }

  // What may be fetched before the kernel before has ended.
  __device__ __forceinline__ void begin() const {
    const int first = min(STAGES, part.count);
#pragma unroll 1
    for (int i = 0; i < first; i++) weights(i, i);
  }

  __device__ __forceinline__ void rest() const {
    Ring<STAGES> ring;
#pragma unroll 1
    for (int i = 0; i < part.count; i++) {
      if (i >= STAGES) {
        wait(address_of(shared.emptied[ring.stage]), ring.parity ^ 1);
        weights(ring.stage, i);
      }
      if (leads) tokens(ring.stage, i);
      ring.advance();
    }
  }
};

// --- a warpgroup multiplies
// ---------------------------------------------------------------------------------------

// A stage may be filled again, by all who fill it.
__device__ __forceinline__ void release(const uint64& barrier, const Part& part) {
  const int lane = threadIdx.x % WARP_SIZE;
  if (SHARERS == 1) {
    if (lane == 0) arrive(address_of(barrier));
  } else {
#if CLUSTER > 1
    if (lane < SHARERS) arrive_there(address_in(&barrier, part.slice * SHARERS + lane));
#endif
  }
}

#if WEIGHT_KIND != WHOLE_WEIGHTS
template <int NUMBER>
struct Numbered {
  static constexpr int number = NUMBER;
};

// NOTE: two sets of operands take turns, so that one is made while the other is multiplied.
__device__ __forceinline__ void multiply(float (&sums)[TOKENS / 2], Shared& shared, const Part& part) {
  const int free_at = max(0, part.count - STAGES + SUM_STAGES);  // from then on sums may come
  const StoredRows rows;
  Ring<STAGES> ring;
  ChunkScales scales;
  Operands operands[2];
  const auto begin_chunk = [&](int i, Operands& a) {
    wait(address_of(shared.filled[ring.stage]), ring.parity);
#if SCALES
    const int number = part.begin + i;
    scales.load(shared.scales[number / PIECE_CHUNKS % SCALE_PLACES], number);
#endif
    rows.load(a, shared.stages[ring.stage].weights, 0, scales);
  };
  // Part `tile` of chunk i, while what comes next is made.
  const auto multiply_part = [&](auto turn, auto tile, int i) {
    const int stage = ring.stage;
    const Operands& a = operands[turn.number];
    Operands& next = operands[1 - turn.number];
    const uint64 tokens = tile_descriptor(shared.stages[stage].tokens[tile.number]);
    fence_products();
#pragma unroll
    for (int step = 0; step < STEPS_OF_TILE; step++) {
      Product<TOKENS>::registers_shared(sums, a[step], moved(tokens, step * 32), true);
    }
    commit_products();
    if constexpr (tile.number + 1 < TOKEN_TILES) {
      rows.load(next, shared.stages[stage].weights, tile.number + 1, scales);
      wait_products<0>();
    } else {
      ring.advance();
      if (i + 1 < part.count) begin_chunk(i + 1, next);
      wait_products<0>();
      if (i + STAGES < part.count) release(shared.emptied[stage], part);
      if (SLICES > 1 && i == free_at) announce_to_cluster();
    }
  };
  begin_chunk(0, operands[0]);
#pragma unroll 1
  for (int i = 0; i < part.count; i++) {
    multiply_part(Numbered<0>(), Numbered<0>(), i);
    if constexpr (TOKEN_TILES > 1) {
      multiply_part(Numbered<1>(), Numbered<TOKEN_TILES - 1>(), i);
    } else if (++i < part.count) {
      multiply_part(Numbered<1>(), Numbered<0>(), i);
    }
  }
  settle(sums);
  if (SLICES > 1 && free_at == part.count) announce_to_cluster();
}

#else

__device__ __forceinline__ void multiply(float (&sums)[TOKENS / 2], Shared& shared, const Part& part) {
  const int free_at = max(0, part.count - STAGES + SUM_STAGES);  // from then on sums may come
  Ring<STAGES> ring;
  int before = 0;
#pragma unroll 1
  for (int i = 0; i < part.count; i++) {
    wait(address_of(shared.filled[ring.stage]), ring.parity);
    fence_products();
    const Stage& stage = shared.stages[ring.stage];
    multiply_tiles<TOKENS>(sums, tile_descriptor(stage.weights), tile_descriptor(stage.tokens[0]));
    commit_products();
    wait_products<1>();
    if (i > 0 && i - 1 + STAGES < part.count) release(shared.emptied[before], part);
    if (SLICES > 1 && i == free_at) announce_to_cluster();
    before = ring.stage;
    ring.advance();
  }
  wait_products<0>();
  settle(sums);
  if (SLICES > 1 && free_at == part.count) announce_to_cluster();
}

#endif

// The strips that a warp finishes: their numbers among those of the thread block.
__device__ __forceinline__ int own_strip(int i) {
  const int warp = threadIdx.x / WARP_SIZE, half = MULTIPLYING_WARPS / 2;
  const int first = PAIRED ? warp % half * 2 + warp / half : warp;  // as the warp has them in the tile
  return first + i * MULTIPLYING_WARPS;
}

#if SLICES > 1
// Sums of a strip from a slice, in the shared memory of the thread block that finishes it.
__device__ __forceinline__ float4* place_of(Shared& shared, int free_stage, int slice, int own) {
  const int at = slice * OWN_STRIPS + own;
  Stage& stage = shared.stages[(free_stage + at / STAGE_STRIPS) % STAGES];
  return reinterpret_cast<float4*>(reinterpret_cast<unsigned char*>(&stage) + at % STAGE_STRIPS * STRIP_BYTES) +
         threadIdx.x % WARP_SIZE;
}

__device__ __forceinline__ void send(Shared& shared, const Part& part, const float (&sums)[TOKENS / 2]) {
#pragma unroll
  for (int i = 0; i < TOKENS / 8; i++) {
    const int strip = own_strip(i), to = strip / OWN_STRIPS;
    float4* there = place_of(shared, part.free_stage(to), part.slice, strip % OWN_STRIPS);
    send_to(there, &shared.complete, to * SHARERS + part.share,
            make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  }
}

__device__ __forceinline__ void receive(Shared& shared, const Part& part, float (&sums)[4 * WARP_STRIPS]) {
  const int free_stage = part.free_stage(part.slice);
  wait(address_of(shared.complete), 0);
#pragma unroll
  for (int i = 0; i < WARP_STRIPS; i++) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (own_strip(i) < OWN_STRIPS) {
#pragma unroll
      for (int slice = 0; slice < SLICES; slice++) {
        const float4 more = *place_of(shared, free_stage, slice, own_strip(i));
        sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
      }
    }
    sums[4 * i] = sum.x, sums[4 * i + 1] = sum.y, sums[4 * i + 2] = sum.z, sums[4 * i + 3] = sum.w;
  }
}
#endif

// --- and finish -------------------------------------------------------------------------------------------------

// Strips of the same tokens that a thread block finishes, and the pieces of 16 bytes that a token has in them.
constexpr int STRIPS_BESIDE = MULTIPLYING_WARPS < OWN_STRIPS ? MULTIPLYING_WARPS : OWN_STRIPS;
constexpr int TOKEN_PIECES = STRIPS_BESIDE * 2 / (PAIRED ? 2 : 1);
constexpr int PIECES = OWN_STRIPS / STRIPS_BESIDE * 8 * TOKEN_PIECES;
constexpr int OWN_PIECES = ceil_div(PIECES, NUM_MULTIPLIERS);
static_assert(OWN_PIECES <= 4, "there are registers for what is added");

// The pieces that a thread writes.
struct Pieces {
  const Part& part;
  const int num_tokens, out_features, row_stride;

  static __device__ __forceinline__ int index(int i) { return threadIdx.x + i * NUM_MULTIPLIERS; }
  static __device__ __forceinline__ int own_token(int i) { return index(i) / TOKEN_PIECES; }
  static __device__ __forceinline__ int strip(int i) {
    const int beside = index(i) % TOKEN_PIECES / 2 * (PAIRED ? 2 : 1);
    return own_token(i) / 8 * STRIPS_BESIDE + beside;
  }
  static __device__ __forceinline__ int in_strip(int i) {
    return own_token(i) % 8 * STRIP_ROWS + index(i) % 2 * PIECE;
  }

  __device__ __forceinline__ int token(int i) const {
    return (part.slice * OWN_STRIPS + strip(i)) / MULTIPLYING_WARPS * 8 + own_token(i) % 8;
  }
  __device__ __forceinline__ int column(int i) const {
    return part.tile_column + Part::row_of(part.slice * OWN_STRIPS + strip(i)) + index(i) % 2 * PIECE;
  }
  __device__ __forceinline__ bool exists(int i) const {
    return index(i) < PIECES && token(i) < num_tokens && column(i) < out_features;
  }
  __device__ __forceinline__ int64 place(int i) const {
    return static_cast<int64>(token(i)) * row_stride + column(i);
  }

  // Piece i of the stream as the norm behind it is to find it; for whole warps, also those that have no such piece.
  __device__ __forceinline__ void weigh_piece(int i, uint4 piece, uint4 weight, const NormAhead& ahead) const {
    float squares = 0.0f;
    if (exists(i)) {
      float values[PIECE], weights[PIECE];
      unpack(piece, values);
      unpack(weight, weights);
      squares = weigh(values, weights, ahead.unit);
      store_16(ahead.rows + place(i), pack(values));
    }
    squares = warp_sum<TOKEN_PIECES / 2, 1>(squares);
    if (exists(i) && index(i) % TOKEN_PIECES == 0)
      ahead.squares[column(i) / (TOKEN_PIECES * PIECE) * num_tokens + token(i)] = squares;
  }
};

// What the sums of a thread's two rows are multiplied by, and what is added to them.
struct OfRows {
  float factors[2] = {1.0f, 1.0f}, shifts[2] = {};

  // `row`: where the first of them is in the tile.
  __device__ __forceinline__ void load(const Part& part, int row, const __half* scales, const Element* bias,
                                       int out_features) {
#pragma unroll
    for (int i = 0; i < 2; i++, row += 8) {
      if (part.tile_column + row % COLUMNS >= out_features) continue;
      if (!PAIRED && bias != nullptr) shifts[i] = to_float(bias[part.tile_column + row]);
      if (FEW_BITS && SCALES == 0)
        factors[i] = __half2float(scales[part.weight_row(row, out_features)]) * WEIGHT_FACTOR;
    }
  }
  __device__ __forceinline__ float apply(float sum, int i) const {
    return FEW_BITS ? fmaf(sum, factors[i], shifts[i]) : sum + shifts[i];
  }
};

// The sums of a thread to `results`, [OWN_STRIPS, 8 tokens, STRIP_ROWS], rounded.
__device__ __forceinline__ void store_results(Element* results, const float (&sums)[4 * WARP_STRIPS],
                                              const OfRows& of_rows, const Part& part,
                                              const float (&row_factors)[TOKENS]) {
  const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
  for (int i = 0; i < WARP_STRIPS; i++) {
    const int strip = own_strip(i);
    if (strip >= OWN_STRIPS) continue;
    Element* to = results + strip * STRIP + lane % 4 * 2 * STRIP_ROWS + lane / 4;
    const int token = (part.slice * OWN_STRIPS + strip) / MULTIPLYING_WARPS * 8 + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 4; j++) {  // two tokens of a row, and of the eighth row after it
      const float factor = NORM_DUE ? row_factors[token + j % 2] : 1.0f;
      const float sum = of_rows.apply(NORM_DUE ? sums[4 * i + j] * factor : sums[4 * i + j], j / 2);
      to[j % 2 * STRIP_ROWS + j / 2 * 8] = from_float<Element>(PAIRED ? sum : activate(sum));
    }
  }
}

__device__ __forceinline__ uint4 finish(const Element* results, uint4 before, bool has_residual) {
  uint4 piece = load_16(results);
  if (!PAIRED && !has_residual) return piece;
  float values[PIECE], others[PIECE];
  unpack(piece, values);
  if (PAIRED) {
    unpack(load_16(results + STRIP), others);
#pragma unroll
    for (int i = 0; i < PIECE; i++) values[i] = activate(values[i]) * others[i];
  }
  if (has_residual) {
    unpack(before, others);
#pragma unroll
    for (int i = 0; i < PIECE; i++) values[i] = (PAIRED ? rounded(values[i]) : values[i]) + others[i];
  }
  return pack(values);
}

// Grid: (CLUSTER * ceil(tiles / SHARERS)), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS, 2) cluster_linear(
    Element* output,                           // [num_tokens, out_features], strided; may be the residual
    const __grid_constant__ TensorMap weight,  // [out_features, in_features], twice the rows if
                                               // PAIRED; COLUMNS rows a tile; of few bits in pairs of bytes
    const __half* __restrict__ scales,         // [its rows, groups]; null of 16 bits
    const __half* __restrict__ minimums,       // likewise, with SCALES 2
    const Element* __restrict__ bias,          // [out_features], or null; not with PAIRED
    const __grid_constant__ TensorMap input,   // [num_tokens, in_features], SHARED_TOKENS rows a tile
    const Element* residual,                   // [num_tokens, out_features], or null
    int num_tokens,                            // at most TOKENS
    int in_features, int out_features,
    int row_stride,         // elements between tokens of output and residual
    const NormAhead ahead,  // with NORM_AHEAD, of as many tokens as the output, which is contiguous
    const NormDue due) {    // with NORM_DUE, of the input
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  begin_launch();
  const Part part(in_features);
#if SCALES
  const Fetch fetch = {shared, part, weight, input, out_features, {scales, minimums, in_features / SCALE_GROUP}};
#else
  const Fetch fetch = {shared, part, weight, input, out_features};
#endif
  // Of groups a whole warp fetches, since scales come in many small copies.
  const bool fetches = SCALES ? threadIdx.x >= NUM_MULTIPLIERS : threadIdx.x == NUM_MULTIPLIERS;
  if (threadIdx.x == NUM_MULTIPLIERS) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(address_of(shared.filled[i]), FILLERS);
      init_barrier(address_of(shared.emptied[i]), SHARERS * MULTIPLYING_WARPS);
    }
    init_barrier(address_of(shared.complete), 1);
    publish_barriers();
    show_to_copies();
    if (SLICES > 1) expect_bytes(address_of(shared.complete), STRIPS * STRIP_BYTES);
  }
  if (fetches) {
    if (SCALES) __syncwarp();
    fetch.begin();
  }
  __syncthreads();
  announce_to_cluster();  // their barriers are there
  wait_for_cluster();
  if (threadIdx.x >= NUM_MULTIPLIERS) {
    if (fetches) {
      await_input();
      fetch.rest();
    }
    // NOTE: not before, although this warp reads no stage: under memcheck who arrives waits for all other warps.
    if (SLICES > 1) announce_to_cluster();
    if (SLICES > 1) wait_for_cluster();
    return;
  }
  OfRows of_rows;
  of_rows.load(part, Part::row_of(part.slice * OWN_STRIPS + own_strip(0)) + threadIdx.x % WARP_SIZE / 4, scales,
               bias, out_features);
  const Pieces pieces = {part, num_tokens, out_features, row_stride};
  uint4 before[OWN_PIECES] = {}, norm_weights[OWN_PIECES] = {};
  const auto load_residual = [&] {
#pragma unroll
    for (int i = 0; i < OWN_PIECES && residual != nullptr; i++) {
      if (!pieces.exists(i)) continue;
      before[i] = __ldcg(reinterpret_cast<const uint4*>(residual + pieces.place(i)));
      if (NORM_AHEAD) norm_weights[i] = load_16(ahead.weight + pieces.column(i));
    }
  };
  constexpr bool IS_LATE = FEW_BITS;  // registers are short
  await_input();
  if (!IS_LATE) load_residual();
#if NORM_DUE
  RowFactors<TOKENS, NUM_MULTIPLIERS> row_factors(threadIdx.x);
  row_factors.load(due, 0, num_tokens);
#endif
  float sums[TOKENS / 2] = {};
  multiply(sums, shared, part);
#if NORM_DUE
  row_factors.store(shared.row_factors, due);
#endif
  if (IS_LATE) load_residual();
  Element* results = reinterpret_cast<Element*>(shared.stages);
#if SLICES > 1
  wait_for_cluster();
  send(shared, part, sums);
  float own[4 * WARP_STRIPS];
  receive(shared, part, own);
  sync_named(1, NUM_MULTIPLIERS);  // results take the place of sums
  store_results(results, own, of_rows, part, shared.row_factors);
#else
  sync_named(1, NUM_MULTIPLIERS);  // or of chunks
  store_results(results, sums, of_rows, part, shared.row_factors);
#endif
  sync_named(1, NUM_MULTIPLIERS);
#pragma unroll
  for (int i = 0; i < OWN_PIECES; i++) {
    uint4 piece = {};
    if (pieces.exists(i)) {
      const Element* from = results + Pieces::strip(i) * STRIP + Pieces::in_strip(i);
      piece = finish(from, before[i], residual != nullptr);
      store_16(output + pieces.place(i), piece);
    }
    if (NORM_AHEAD) pieces.weigh_piece(i, piece, norm_weights[i], ahead);
  }
  end_launch();
}
