// output = input * weight^T + bias for up to 64 rows and a weight of any size in 8 or 4 bits, on tensor cores.
//
// The weight streams through a ring in shared memory as it is stored, tiles of 64 to 256 rows in chunks of 128
// bytes of a row, with all input rows' same elements beside them, every thread block with equally many chunks
// (common/stream_k.cuh). Eight warps: four share the rows of a tile, and two the inner elements of a chunk. A lane
// makes 16-bit numbers of what it needs just before a product (common/weight_kinds.cuh, which says why the order of
// inner elements does not matter); the weight is the operand of 16 rows, and the input's rows are the columns, so
// that 8 of them waste nothing.
//
// Scales of whole rows are applied to sums, as digits are exact. Scales of groups are applied to the 16-bit
// numbers: that takes four instructions for each operand of 256 weights, whereas on sums it takes half as many as
// there are input rows for groups of 16 times as many elements, and as many registers again as the sums.
//
// Idea of 4-bit weights that are widened in registers, from a ring, for batches: Marlin (Frantar et al. 2024, arXiv
// 2408.11743).

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/stream_k.cuh"
#include "common/weight_kinds.cuh"

#ifndef SCALES
#define SCALES 0  // 0: one a row; 1: one for each group of a row; 2: and a minimum
#endif
#ifndef TOKENS
#define TOKENS 8  // input rows, padding included, a multiple of 8
#endif
#ifndef ROW_TILES
#define ROW_TILES 2  // 16 weight rows each, of a warp
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef BLOCKS
#define BLOCKS 1  // thread blocks on a multiprocessor
#endif

static_assert(FEW_BITS, "a kind of weight is named");

constexpr int WARPS_OF_ROWS = 4, WARPS_OF_CHUNK = 2;
constexpr int NUM_THREADS = WARPS_OF_ROWS * WARPS_OF_CHUNK * WARP_SIZE;
constexpr int WARP_ROWS = 16 * ROW_TILES;
constexpr int ROWS = WARPS_OF_ROWS * WARP_ROWS;   // of the weight, of a tile
constexpr int ROW_BYTES = 128, ROW_PIECES = 8;    // of a chunk of the weight
constexpr int PIECE_DIGITS = 128 / WEIGHT_BITS;   // of 16 bytes
constexpr int CHUNK = ROW_PIECES * PIECE_DIGITS;  // inner elements
constexpr int TOKEN_PIECES = CHUNK / PIECE;       // of an input row's chunk
constexpr int STEPS = PIECE_DIGITS / PIECE;       // of a lane in a chunk; in each it multiplies 8 elements
constexpr int TOKEN_TILES = TOKENS / 8;           // 8 input rows each
constexpr int SUM_PITCH = ROWS + 4;               // floats between input rows; no bank conflicts
constexpr int QUADS = ROWS / 4;                   // of an input row's sums
constexpr int OWN_QUADS = ceil_div(8 * QUADS, NUM_THREADS);  // of a thread, of 8 input rows

struct Stage {
  alignas(128) unsigned char weights[ROWS * ROW_BYTES], tokens[TOKENS * TOKEN_PIECES * 16];
};

struct Shared {
  Stage stages[STAGES];
  alignas(16) float sums[WARPS_OF_CHUNK][8 * SUM_PITCH];
  int number;  // of the thread block
};

struct Product {
  Element* output;              // [num_tokens, out_features]
  const unsigned char* digits;  // [out_features, row_bytes]
  const __half* scales;         // [out_features, num_groups]
  const __half* minimums;       // the same, or null
  const Element* bias;          // [out_features], or null
  const Element* input;         // [num_tokens, in_features]
  int num_tokens, in_features, out_features, group_size;

  __device__ __forceinline__ int row_bytes() const { return in_features / 8 * WEIGHT_BITS; }
};

// Where pieces lie in a stage: so that eight lanes which read at the same time, four neighbours of two rows each,
// fall into different banks. Of the input the neighbours' pieces are STEPS apart.
__device__ __forceinline__ int weight_place(int row, int piece) {
  return row * ROW_BYTES + (piece ^ row % 2 * 4) * 16;
}
__device__ __forceinline__ int token_place(int token, int piece) {
  return (token * TOKEN_PIECES + (piece ^ piece / 8 % 2 * 2 ^ token % 2)) * 16;
}

// --- from global to shared memory -------------------------------------------------------------------------------

// What does not exist becomes zeros.
__device__ __forceinline__ void copy_weights(Stage& stage, const Product& of, int tile, int chunk) {
  constexpr int AT_ONCE = NUM_THREADS / ROW_PIECES;
  const int piece = threadIdx.x % ROW_PIECES, first = threadIdx.x / ROW_PIECES;
  const int at = chunk * ROW_BYTES + piece * 16, row_bytes = of.row_bytes();
  const unsigned char* from = of.digits + static_cast<int64>(tile * ROWS + first) * row_bytes + at;
  const int rows = at < row_bytes ? of.out_features - tile * ROWS : 0;
  unsigned char* to = stage.weights + weight_place(first, piece);
#pragma unroll
  for (int i = 0; i < ROWS / AT_ONCE; i++) {
    const bool valid = first + i * AT_ONCE < rows;
    const int64 ahead = static_cast<int64>(i * AT_ONCE) * row_bytes;
    copy_16_async(to + i * AT_ONCE * ROW_BYTES, valid ? from + ahead : of.digits, valid);
  }
}

__device__ __forceinline__ void copy_tokens(Stage& stage, const Product& of, int chunk) {
  constexpr int AT_ONCE = NUM_THREADS / TOKEN_PIECES, PASSES = ceil_div(TOKENS, AT_ONCE);
  const int piece = threadIdx.x % TOKEN_PIECES, first = threadIdx.x / TOKEN_PIECES;
  const int at = chunk * CHUNK + piece * PIECE;
  const Element* from = of.input + static_cast<int64>(first) * of.in_features + at;
  const int tokens = at < of.in_features ? of.num_tokens : 0;
  unsigned char* to = stage.tokens + token_place(first, piece);
#pragma unroll
  for (int i = 0; i < PASSES; i++) {
    const int token = first + i * AT_ONCE;
    if (TOKENS % AT_ONCE != 0 && token >= TOKENS) break;
    const bool valid = token < tokens;
    const int64 ahead = static_cast<int64>(i * AT_ONCE) * of.in_features;
    copy_16_async(to + i * AT_ONCE * TOKEN_PIECES * 16, valid ? from + ahead : of.input, valid);
  }
}

// --- products ---------------------------------------------------------------------------------------------------

// Where a lane of a warp stands: `g` and `q` as in mma.cuh.
struct Lane {
  const int g = threadIdx.x % WARP_SIZE / 4, q = threadIdx.x % 4;
  const int warp = threadIdx.x / WARP_SIZE;
  const int first_row = warp % WARPS_OF_ROWS * WARP_ROWS;  // of the tile, of the warp
  const int part = warp / WARPS_OF_ROWS;                   // of a chunk
  const int piece = part * (ROW_PIECES / WARPS_OF_CHUNK) + q;
};

// Of the rows of a lane, where its piece of a chunk lies.
struct GroupScales {
  __half scales[ROW_TILES][2], minimums[ROW_TILES][2];

  __device__ __forceinline__ void load(const Product& of, const Lane& lane, int tile, int chunk) {
    if (SCALES == 0) return;
    const int num_groups = of.in_features / of.group_size;
    // NOTE: a quotient, exact as long as both numbers together have 32 bits; a division takes five times as long.
    const uint32 inverse = 0xffffffffu / of.group_size + 1;
    const int quotient = __umulhi(chunk * CHUNK + lane.piece * PIECE_DIGITS, inverse);
    const int group = min(quotient, num_groups - 1);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = min(tile * ROWS + lane.first_row + m * 16 + h * 8 + lane.g, of.out_features - 1);
        const int64 at = static_cast<int64>(row) * num_groups + group;
        scales[m][h] = __ldg(of.scales + at);
        if (SCALES == 2) minimums[m][h] = __ldg(of.minimums + at);
      }
    }
  }
};

// A number for both elements of a pair.
__device__ __forceinline__ uint32 twice(__half x, float factor) {
  if (factor == 1.0f && Pairs<Element>::ONES == Pairs<__half>::ONES) {
    return __half_as_ushort(x) * 0x10001u;
  }
  return pack_pair<Element>(factor * __half2float(x), factor * __half2float(x));
}

// Digits become weights.
__device__ __forceinline__ uint32 scaled(uint32 pair, uint32 scale, uint32 minimum) {
  using Of = Pairs<Element>;
  if (SCALES == 0) return pair;
  if (SCALES == 1) return Of::bits(__hmul2(Of::of(pair), Of::of(scale)));
  return Of::bits(__hfma2(Of::of(pair), Of::of(scale), Of::of(minimum)));
}

// Eight elements of a lane's piece, those of step `step`.
__device__ __forceinline__ uint4 widened(uint4 piece, int step) {
  const uint32 words[4] = {piece.x, piece.y, piece.z, piece.w};
  if constexpr (WEIGHT_BITS == 4) {
    return as_elements(words[step]);
  } else {
    return as_elements(make_uint2(words[2 * step], words[2 * step + 1]));
  }
}

// The sums of a warp: row tile m, token tile n, D of mma.cuh.
struct WarpSums {
  float sums[ROW_TILES][TOKEN_TILES][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < TOKEN_TILES; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) sums[m][n][e] = 0.0f;
      }
    }
  }

  // A chunk's products are added.
  __device__ __forceinline__ void multiply(const Stage& stage, const GroupScales& groups, const Lane& lane) {
    const unsigned char* weights = stage.weights + weight_place(lane.first_row + lane.g, lane.piece);
    uint4 pieces[ROW_TILES][2];
    uint32 scales[ROW_TILES][2], minimums[ROW_TILES][2];
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        pieces[m][h] = load_16(weights + (m * 16 + h * 8) * ROW_BYTES);
        scales[m][h] = SCALES == 0 ? 0 : twice(groups.scales[m][h], WEIGHT_FACTOR);
        minimums[m][h] = SCALES == 2 ? twice(groups.minimums[m][h], 1.0f) : 0;
      }
    }
    const int first_token = token_place(lane.g, lane.piece * STEPS);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      uint32 a[2][ROW_TILES][4];  // of two products
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const uint4 pairs = widened(pieces[m][h], step);
          a[0][m][h] = scaled(pairs.x, scales[m][h], minimums[m][h]);
          a[0][m][2 + h] = scaled(pairs.y, scales[m][h], minimums[m][h]);
          a[1][m][h] = scaled(pairs.z, scales[m][h], minimums[m][h]);
          a[1][m][2 + h] = scaled(pairs.w, scales[m][h], minimums[m][h]);
        }
      }
      const unsigned char* tokens = stage.tokens + (first_token ^ step * 16);
#pragma unroll
      for (int n = 0; n < TOKEN_TILES; n++) {
        const uint4 b = in_order_of_weights(load_16(tokens + n * 8 * TOKEN_PIECES * 16));
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) mma_16x8x16<Element>(sums[m][n], a[0][m], {b.x, b.y});
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) mma_16x8x16<Element>(sums[m][n], a[1][m], {b.z, b.w});
      }
    }
  }

  // Of token tile n, to [8][SUM_PITCH].
  __device__ __forceinline__ void store(float* to, int n, const Lane& lane) const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        to[(2 * lane.q + e % 2) * SUM_PITCH + lane.first_row + m * 16 + e / 2 * 8 + lane.g] = sums[m][n][e];
      }
    }
  }
};

// --- the end of a tile ------------------------------------------------------------------------------------------

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Four columns of an input row.
__device__ __forceinline__ void write_quad(const Product& of, float4 sums, int token, int column) {
  float values[4] = {sums.x, sums.y, sums.z, sums.w};
  const int count = of.out_features - column;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    if (e >= count) break;
    if (SCALES == 0) values[e] *= WEIGHT_FACTOR * __half2float(__ldg(of.scales + column + e));
    if (of.bias != nullptr) values[e] += to_float(of.bias[column + e]);
  }
  Element* to = of.output + static_cast<int64>(token) * of.out_features + column;
  if (of.out_features % 4 == 0) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3]));
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; e++) {
    if (e < count) to[e] = from_float<Element>(values[e]);
  }
}

// Puts the sums of a tile together, 8 input rows at a time: those of the warps that shared its chunks, and those of
// other thread blocks; by all threads.
struct Ending {
  float4* left_sums;  // [gridDim.x, TOKEN_TILES, 8 * QUADS]
  uint32* flags;      // [gridDim.x]

  __device__ __forceinline__ float4* left_by(int thread_block, int n, int quad) const {
    return left_sums + (static_cast<int64>(thread_block) * TOKEN_TILES + n) * (8 * QUADS) + quad;
  }

  // Number i of the thread's quads; there may be none.
  static __device__ __forceinline__ int own_quad(int i) { return threadIdx.x + i * NUM_THREADS; }
  static __device__ __forceinline__ bool exists(int quad) {
    return 8 * QUADS % NUM_THREADS == 0 || quad < 8 * QUADS;
  }

  // Calls `use(n, i, sums)` for all quads of this thread.
  template <typename Use>
  __device__ __forceinline__ void for_each(Shared& shared, const WarpSums& warp, const Lane& lane, Use use) const {
#pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
      __syncthreads();  // the sums before are read
      warp.store(shared.sums[lane.part], n, lane);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < OWN_QUADS; i++) {
        const int quad = own_quad(i);
        if (!exists(quad)) continue;
        const int at = quad / QUADS * SUM_PITCH + quad % QUADS * 4;
        use(n, i,
            *reinterpret_cast<const float4*>(shared.sums[0] + at) +
                *reinterpret_cast<const float4*>(shared.sums[1] + at));
      }
    }
  }

  __device__ __forceinline__ void leave(Shared& shared, const WarpSums& warp, const Lane& lane) const {
    for_each(shared, warp, lane,
             [&](int n, int i, float4 sums) { __stcg(left_by(shared.number, n, own_quad(i)), sums); });
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) raise_flag(flags + shared.number);
  }

  // `first`: the thread block that has begun the tile.
  __device__ __forceinline__ void finish(Shared& shared, const WarpSums& warp, const Lane& lane, const Product& of,
                                         int tile, int first) const {
    float4 others[TOKEN_TILES][OWN_QUADS];
#pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
#pragma unroll
      for (int i = 0; i < OWN_QUADS; i++) others[n][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    if (first < shared.number) {
      for (int from = first + threadIdx.x; from < shared.number; from += NUM_THREADS) {
        await_flag(flags + from);
        flags[from] = 0;
      }
      __syncthreads();
#pragma unroll 1
      for (int from = first; from < shared.number; from++) {
#pragma unroll
        for (int n = 0; n < TOKEN_TILES; n++) {
#pragma unroll
          for (int i = 0; i < OWN_QUADS; i++) {
            if (exists(own_quad(i))) others[n][i] = others[n][i] + __ldcg(left_by(from, n, own_quad(i)));
          }
        }
      }
    }
    for_each(shared, warp, lane, [&](int n, int i, float4 sums) {
      const int quad = own_quad(i), token = n * 8 + quad / QUADS, column = tile * ROWS + quad % QUADS * 4;
      if (token < of.num_tokens && column < of.out_features) write_quad(of, others[n][i] + sums, token, column);
    });
  }
};

// Grid: (thread blocks, no more than there are chunks), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_THREADS, BLOCKS)
    few_bits_linear(Element* __restrict__ output,              // [num_tokens, out_features]
                    const unsigned char* __restrict__ digits,  // [out_features, in_features * WEIGHT_BITS / 8]
                    const __half* __restrict__ scales,         // [out_features, in_features / group_size]
                    const __half* __restrict__ minimums,       // the same, or null
                    const Element* __restrict__ bias,          // [out_features], or null
                    const Element* input,                      // [num_tokens, in_features]
                    float4* left_sums,                         // [gridDim.x, TOKENS * ROWS / 4]
                    uint32* counters,                          // [1 + gridDim.x], zero before and after
                    int num_tokens, int in_features, int out_features, int group_size) {
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) shared.number = atomicInc(counters, gridDim.x - 1);
  __syncthreads();
  let_next_kernel_start();  // which may draw numbers from the same counter, once all of these are drawn
  const Product of = {output, digits,     scales,      minimums,     bias,
                      input,  num_tokens, in_features, out_features, group_size};
  const Share share(ceil_div(out_features, ROWS), ceil_div(in_features, CHUNK), shared.number);
  const int count = share.end - share.begin;

  // The weight is there from the beginning; the input may still be in the making.
  Walk ahead(share);
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i >= count) break;
    copy_weights(shared.stages[i], of, ahead.tile, ahead.chunk);
    ahead.advance();
  }
  wait_for_previous_kernel();
  Walk beside(share);
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < count) copy_tokens(shared.stages[i], of, beside.chunk);
    commit_copies();
    beside.advance();
  }

  Walk here(share);
  const Lane lane;
  const Ending ending = {left_sums, counters + 1};
  WarpSums warp;
  warp.clear();
  GroupScales groups, next_groups;
  if (count > 0) next_groups.load(of, lane, here.tile, here.chunk);
  int stage = 0, first_chunk = here.chunk;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // everybody's copies are here, and nobody reads the stage that is filled next
    if (i + STAGES - 1 < count) {
      Stage& next = shared.stages[stage == 0 ? STAGES - 1 : stage - 1];
      copy_weights(next, of, ahead.tile, ahead.chunk);
      copy_tokens(next, of, ahead.chunk);
      ahead.advance();
    }
    commit_copies();
    const int tile = here.tile, chunk = here.chunk;
    here.advance();
    groups = next_groups;
    if (i + 1 < count) next_groups.load(of, lane, here.tile, here.chunk);
    warp.multiply(shared.stages[stage], groups, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if (i + 1 < count && here.tile == tile) continue;
    if (chunk + 1 < share.chunks) {
      ending.leave(shared, warp, lane);
    } else {
      const int first = first_chunk > 0 ? share.first_with(tile * share.chunks) : shared.number;
      ending.finish(shared, warp, lane, of, tile, first);
    }
    warp.clear();
    first_chunk = here.chunk;
  }
}
