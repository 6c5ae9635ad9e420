// What both kernels for weights of few bits have in common: which thread has which rows of a tile and which inner
// elements of a chunk, how weights get into shared memory and become 16 bits, and how a tile's sums end.
//
// A tile is 64 rows of the weight for each ROW_TILES, a chunk 128 bytes of each; eight warps: four share the rows,
// and two the inner elements. A lane makes 16-bit numbers of what it needs just before a product
// (quantized/weight_kinds.cuh, which says why the order of inner elements does not matter); the weight is the
// operand of 16 rows, and the input's rows are the columns, so that 8 of them waste nothing.
//
// Scales of whole rows are applied to sums, as digits are exact. Scales of groups are applied to the 16-bit
// numbers: that takes four instructions for each operand of 256 weights, whereas on sums it takes half as many as
// there are input rows for groups of 16 times as many elements, and as many registers again as the sums.

#pragma once

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "quantized/weight_kinds.cuh"
#include "products/stream_k_share.cuh"

#ifndef SCALES
#define SCALES 0  // 0: one a row; 1: one for each group of a row; 2: and a minimum
#endif
#ifndef TOKENS
#define TOKENS 16  // input rows, padding included, a multiple of 8
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
constexpr int ROWS = WARPS_OF_ROWS * 16 * ROW_TILES;  // of the weight, of a tile
constexpr int CHUNK_BYTES = 128, CHUNK_PIECES = 8;    // of a row of the weight
constexpr int PIECE_DIGITS = 128 / WEIGHT_BITS;       // of 16 bytes
constexpr int CHUNK = CHUNK_PIECES * PIECE_DIGITS;    // inner elements
constexpr int STEPS = PIECE_DIGITS / PIECE;           // of a lane in a chunk, 8 elements each
constexpr int TOKEN_TILES = TOKENS / 8;               // 8 input rows each

struct WeightStage {
  alignas(128) unsigned char bytes[ROWS * CHUNK_BYTES];
};

// Where a piece of a row lies: eight lanes that read at the same time, four neighbours of two rows each, fall into
// different banks.
__device__ __forceinline__ int weight_place(int row, int piece) {
  return row * CHUNK_BYTES + (piece ^ row % 2 * 4) * 16;
}

// What a launch works on.
struct Task {
  Element* output;              // [num_tokens, out_features], output_stride elements between tokens
  const unsigned char* digits;  // [out_features, row_bytes]
  const __half* scales;         // [out_features, num_groups]
  const __half* minimums;       // the same, or null
  const Element* bias;          // [out_features], or null
  const Element* input;         // [num_tokens, in_features]
  float2* left_sums;            // [gridDim.x, ROW_TILES * TOKEN_TILES, NUM_THREADS]
  uint32* flags;                // [gridDim.x], zero before and after
  int num_tokens, in_features, out_features, output_stride, num_groups;
  uint32 inverse;  // 2^32 / group_size, rounded up

  __device__ __forceinline__ int num_tiles() const { return ceil_div(out_features, ROWS); }
  __device__ __forceinline__ int num_chunks() const { return ceil_div(in_features, CHUNK); }
};

// The thread block's number, in the order in which they start; all of its threads call this.
__device__ __forceinline__ int draw_number(int* shared, uint32* counter) {
  if (threadIdx.x == 0) *shared = atomicInc(counter, gridDim.x - 1);
  __syncthreads();
  let_next_kernel_start();  // which may draw numbers from the same counter, once all of these are drawn
  return *shared;
}

// Keeps the compiler from working a number out again and again.
template <typename T>
__device__ __forceinline__ T* settled(T* x) {
  asm volatile("" : "+l"(x));
  return x;
}
__device__ __forceinline__ int settled(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// What a thread copies of a chunk: a piece of every 32nd row. What does not exist becomes zeros.
struct WeightCopy {
  static constexpr int AT_ONCE = NUM_THREADS / CHUNK_PIECES;
  const unsigned char* from;
  int row, at, place;  // of its first piece: row, byte of a chunk, byte of a stage
  int row_bytes, out_features;

  __device__ __forceinline__ explicit WeightCopy(const Task& of)
      : row(threadIdx.x / CHUNK_PIECES),
        row_bytes(of.in_features / 8 * WEIGHT_BITS),
        out_features(of.out_features) {
    at = threadIdx.x % CHUNK_PIECES * 16;
    from = settled(of.digits + static_cast<int64>(row) * row_bytes + at);
    place = settled(weight_place(row, threadIdx.x % CHUNK_PIECES));
  }

  __device__ __forceinline__ void copy(WeightStage& stage, int tile, int chunk) const {
    const uint32 tile_bytes = ROWS * row_bytes, offset = chunk * CHUNK_BYTES;
    const unsigned char* first = from + static_cast<uint64>(static_cast<uint32>(tile)) * tile_bytes + offset;
    unsigned char* to = stage.bytes + place;
    if (tile * ROWS + ROWS <= out_features && offset + CHUNK_BYTES <= row_bytes) {
      copy_rows(to, first, ROWS);
    } else {
      copy_rows(to, first, offset + at < row_bytes ? out_features - tile * ROWS - row : 0);
    }
  }

  __device__ __forceinline__ void copy_rows(unsigned char* to, const unsigned char* first, int num_valid) const {
#pragma unroll
    for (int i = 0; i < ROWS / AT_ONCE; i++) {
      copy_16_async(to + i * AT_ONCE * CHUNK_BYTES, first, i * AT_ONCE < num_valid);
      first += AT_ONCE * row_bytes;
    }
  }
};

// Where a lane of a warp stands: `g` and `q` as in mma.cuh. Its rows of row tile m are 64 m + row and 8 further on,
// which is what products of warpgroups have it hold.
struct Lane {
  const int g = threadIdx.x % WARP_SIZE / 4, q = threadIdx.x % 4;
  const int row = threadIdx.x / WARP_SIZE % WARPS_OF_ROWS * 16 + g;
  const int part = threadIdx.x / WARP_SIZE / WARPS_OF_ROWS;  // of a chunk
  const int piece = part * (CHUNK_PIECES / WARPS_OF_CHUNK) + q;
};

// Scales of groups, those of the first row in which a thread block is interested first.
struct ScaleTable {
  const __half* scales;    // [num_rows, num_groups]
  const __half* minimums;  // the same, or null
  int num_groups;
  uint32 inverse;  // 2^32 / group_size, rounded up
};

// Of the rows of a lane, where its piece of a chunk lies.
struct GroupScales {
  __half scales[ROW_TILES][2], minimums[ROW_TILES][2];

  __device__ __forceinline__ void load(const Task& of, const Lane& lane, int tile, int chunk) {
    load({of.scales, of.minimums, of.num_groups, of.inverse}, lane, chunk,
         [&](int m, int h) { return min(tile * ROWS + m * 64 + h * 8 + lane.row, of.out_features - 1); });
  }

  // `row_of(m, h)`: the lane's row g + 8 h of row tile m, in the table.
  template <typename RowOf>
  __device__ __forceinline__ void load(const ScaleTable& table, const Lane& lane, int chunk, RowOf row_of) {
    if (SCALES == 0) return;
    // NOTE: a quotient, exact as long as both numbers together have 32 bits; a division takes five times as long.
    const int quotient = __umulhi(chunk * CHUNK + lane.piece * PIECE_DIGITS, table.inverse);
    const int group = min(quotient, table.num_groups - 1);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint32 at = row_of(m, h) * table.num_groups + group;
        scales[m][h] = __ldg(table.scales + at);
        if (SCALES == 2) minimums[m][h] = __ldg(table.minimums + at);
      }
    }
  }
};

// The same for products.
struct PairScales {
  uint32 scales[ROW_TILES][2], minimums[ROW_TILES][2];

  __device__ __forceinline__ explicit PairScales(const GroupScales& groups) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        scales[m][h] = SCALES == 0 ? 0 : twice<Element>(groups.scales[m][h], WEIGHT_FACTOR);
        minimums[m][h] = SCALES == 2 ? twice<Element>(groups.minimums[m][h], 1.0f) : 0;
      }
    }
  }

  // Digits become weights.
  __device__ __forceinline__ uint32 scaled(uint32 pair, int m, int h) const {
    using Of = Pairs<Element>;
    if (SCALES == 0) return pair;
    if (SCALES == 1) return Of::bits(__hmul2(Of::of(pair), Of::of(scales[m][h])));
    return Of::bits(__hfma2(Of::of(pair), Of::of(scales[m][h]), Of::of(minimums[m][h])));
  }
};

// Eight elements of a lane's piece, those of step `step`.
__device__ __forceinline__ uint4 widened(uint4 piece, int step) {
  const uint32 words[4] = {piece.x, piece.y, piece.z, piece.w};
  if constexpr (WEIGHT_BITS == 4) {
    return as_elements(words[step]);
  } else {
    return as_elements(make_uint2(words[2 * step], words[2 * step + 1]));
  }
}

// A lane's pieces of a chunk, and the operands that they become: A of mma.cuh, of two products a step.
struct Weights {
  uint4 pieces[ROW_TILES][2];

  __device__ __forceinline__ Weights(const WeightStage& stage, const Lane& lane) {
    const unsigned char* from = stage.bytes + weight_place(lane.row, lane.piece);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) pieces[m][h] = load_16(from + (m * 64 + h * 8) * CHUNK_BYTES);
    }
  }

  __device__ __forceinline__ void widen(uint32 (&a)[2][ROW_TILES][4], int step, const PairScales& by) const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint4 pairs = widened(pieces[m][h], step);
        a[0][m][h] = by.scaled(pairs.x, m, h);
        a[0][m][2 + h] = by.scaled(pairs.y, m, h);
        a[1][m][h] = by.scaled(pairs.z, m, h);
        a[1][m][2 + h] = by.scaled(pairs.w, m, h);
      }
    }
  }
};

// The sums of a warp: of row tile m, D of mma.cuh for each 8 input rows.
struct WarpSums {
  float sums[ROW_TILES][4 * TOKEN_TILES];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int i = 0; i < 4 * TOKEN_TILES; i++) sums[m][i] = 0.0f;
    }
  }
};

// --- the end of a tile ------------------------------------------------------------------------------------------

// Where the two warps that have shared a chunk meet, and then the results.
struct Meeting {
  static constexpr int PAIRS = ROW_TILES * TOKEN_TILES, PITCH = ROWS + PIECE;  // the latter without bank conflicts
  static constexpr int PAIR_BYTES = PAIRS * NUM_THREADS * 8, RESULT_BYTES = TOKENS * PITCH * 2;
  alignas(16) unsigned char bytes[PAIR_BYTES > RESULT_BYTES ? PAIR_BYTES : RESULT_BYTES];

  __device__ __forceinline__ float2* pair(int i, int thread) {
    return reinterpret_cast<float2*>(bytes) + i * NUM_THREADS + thread;
  }
  __device__ __forceinline__ Element* result(int token, int row) {
    return reinterpret_cast<Element*>(bytes) + token * PITCH + row;
  }
};

__device__ __forceinline__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }

// The sums of both warps that have shared a tile's chunks: of the two the first has rows g of each row tile, the
// second rows g + 8; for all token tiles.
struct MetSums {
  float2 sums[ROW_TILES][TOKEN_TILES];

  // By all threads.
  __device__ __forceinline__ void meet(Meeting& meeting, const WarpSums& warp, const Lane& lane) {
    const bool upper = lane.part == 0;
    __syncthreads();  // what was there before is not needed any more
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < TOKEN_TILES; n++) {
        const float* d = warp.sums[m] + 4 * n;
        sums[m][n] = upper ? make_float2(d[0], d[1]) : make_float2(d[2], d[3]);
        *meeting.pair(m * TOKEN_TILES + n, threadIdx.x ^ NUM_THREADS / 2) =
            upper ? make_float2(d[2], d[3]) : make_float2(d[0], d[1]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < TOKEN_TILES; n++) {
        sums[m][n] = sums[m][n] + *meeting.pair(m * TOKEN_TILES + n, threadIdx.x);
      }
    }
  }

  static __device__ __forceinline__ int row_of(const Lane& lane, int m) {
    return m * 64 + lane.part * 8 + lane.row;
  }

  // Those of a row of each row tile, with a scale of the whole row where there is one for all of it, and the bias.
  __device__ __forceinline__ void scale(int m, const __half* of_row, const Element* bias) {
    const float scale = SCALES == 0 ? WEIGHT_FACTOR * __half2float(__ldg(of_row)) : 1.0f;
    const float shift = bias == nullptr ? 0.0f : to_float(*bias);
#pragma unroll
    for (int n = 0; n < TOKEN_TILES; n++) {
      sums[m][n] = make_float2(sums[m][n].x * scale + shift, sums[m][n].y * scale + shift);
    }
  }

  __device__ __forceinline__ void store(Meeting& meeting, const Lane& lane) const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < TOKEN_TILES; n++) {
        *meeting.result(8 * n + 2 * lane.q, row_of(lane, m)) = from_float<Element>(sums[m][n].x);
        *meeting.result(8 * n + 2 * lane.q + 1, row_of(lane, m)) = from_float<Element>(sums[m][n].y);
      }
    }
  }
};

// Puts the sums of a tile together: those of the warps that shared its chunks, and those of other thread blocks.
struct Ending : MetSums {
  float2* left_sums;  // [gridDim.x, Meeting::PAIRS, NUM_THREADS]
  uint32* flags;      // [gridDim.x], zero before and after
  int number;         // of the thread block

  __device__ __forceinline__ Ending(const Task& of, int its_number)
      : left_sums(of.left_sums), flags(of.flags), number(its_number) {}

  __device__ __forceinline__ float2* left_by(int thread_block, int i) const {
    return left_sums + (static_cast<int64>(thread_block) * Meeting::PAIRS + i) * NUM_THREADS + threadIdx.x;
  }

  // Of the chunks of a tile from `first` to before `end`; by all threads.
  __device__ __forceinline__ void end_run(Meeting& meeting, const WarpSums& warp, const Lane& lane, const Task& of,
                                          const Share& share, int tile, int first, int end) {
    meet(meeting, warp, lane);
    if (end < share.chunks) {
      leave();
      return;
    }
    if (first > 0) add_others(share.first_with(tile * share.chunks));
    finish(lane, of, tile);
    __syncthreads();  // the pairs are read
    store(meeting, lane);
    __syncthreads();
    write(meeting, of, tile);
  }

  __device__ __forceinline__ void leave() const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
      for (int n = 0; n < TOKEN_TILES; n++) __stcg(left_by(number, m * TOKEN_TILES + n), sums[m][n]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) raise_flag(flags + number);
  }

  // `first`: the thread block that has begun the tile.
  __device__ __forceinline__ void add_others(int first) {
    for (int from = first + threadIdx.x; from < number; from += NUM_THREADS) {
      await_flag(flags + from);
      flags[from] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int from = first; from < number; from++) {
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
        for (int n = 0; n < TOKEN_TILES; n++) {
          sums[m][n] = sums[m][n] + __ldcg(left_by(from, m * TOKEN_TILES + n));
        }
      }
    }
  }

  // Scales of whole rows, and the bias.
  __device__ __forceinline__ void finish(const Lane& lane, const Task& of, int tile) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) {
      const int column = min(tile * ROWS + row_of(lane, m), of.out_features - 1);
      scale(m, of.scales + column, of.bias == nullptr ? nullptr : of.bias + column);
    }
  }

  // To the output, whole pieces of a token's columns where they are aligned.
  static __device__ __forceinline__ void write(Meeting& meeting, const Task& of, int tile) {
    constexpr int PIECES = ROWS / PIECE;
#pragma unroll 4
    for (int i = threadIdx.x; i < TOKENS * PIECES; i += NUM_THREADS) {
      const int token = i / PIECES, row = i % PIECES * PIECE, column = tile * ROWS + row;
      if (token >= of.num_tokens || column >= of.out_features) continue;
      const Element* from = meeting.result(token, row);
      Element* to = of.output + static_cast<int64>(token) * of.output_stride + column;
      if (reinterpret_cast<uint64>(to) % 16 == 0 && column + PIECE <= of.out_features) {
        store_16(to, load_16(from));
      } else {
        for (int j = 0; j < min(PIECE, of.out_features - column); j++) to[j] = from[j];
      }
    }
  }
};
