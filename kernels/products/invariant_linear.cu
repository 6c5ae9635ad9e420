// output = input * weight^T + bias, in which a row's numbers do not depend on how many other rows there are.
//
// A sum over the inner dimension is made in one order, which the dimension alone decides: it is parted into PARTS
// runs of whole chunks (32 elements), each part is added up chunk by chunk by the same tensor core products, and
// the parts are added first to last. How many rows and weight rows a thread block has, and whether its parts are
// made side by side by as many warps or one after the other by the same ones, changes who does it and nothing else.
// The idea that an order of sums fixed by the shape makes inference repeatable: He et al. 2025, "Defeating
// nondeterminism in LLM inference"; parts of a sum side by side: split-K, Osama et al. 2023 (arXiv 2301.03598).
//
// The weight's rows are the 16 rows of `mma`, those of the input its 8 columns, so that one row wastes little. A
// lane takes 16 bytes of a row at a time, eight neighbours in k, where `mma` would have it hold two pairs from each
// of two sixteens: the same k for both operands, so the sum has the same terms. In shared memory a chunk of a row
// is 64 bytes: eight rows are 512 contiguous bytes, which a warp reads without bank conflicts and copies by whole
// sectors. Copies run STAGES - 1 chunks ahead.

#include "common/async_copy.cuh"
#include "common/dependent_launch.cuh"
#include "common/mma.cuh"

#ifndef PARTS
#define PARTS 1  // of the inner dimension
#endif
#ifndef SIDE_BY_SIDE
#define SIDE_BY_SIDE 0  // 1: each part has its own warp; 0: all warps go through all parts
#endif
#ifndef WARPS_W
#define WARPS_W 1  // warps that share the weight rows of a tile
#endif
#ifndef WARPS_T
#define WARPS_T 1  // and those that share its input rows
#endif
#ifndef WARP_W
#define WARP_W 16  // weight rows of a warp, a multiple of 16
#endif
#ifndef WARP_T
#define WARP_T 8  // input rows of a warp, a multiple of 8
#endif
#ifndef STAGES
#define STAGES 4
#endif

constexpr int CHUNK = 32;                         // elements of k
constexpr int PIECE = 8;                          // elements of 16 bytes
constexpr int PIECES = CHUNK / PIECE;             // of a row's chunk
constexpr int GROUPS = SIDE_BY_SIDE ? PARTS : 1;  // of warps, each with its own part
constexpr int GROUP_WARPS = WARPS_W * WARPS_T;    // of a group
constexpr int GROUP_THREADS = GROUP_WARPS * WARP_SIZE;
constexpr int NUM_THREADS = GROUPS * GROUP_THREADS;
constexpr int TILE_W = WARPS_W * WARP_W, TILE_T = WARPS_T * WARP_T;
constexpr int TILE_ROWS = TILE_W + TILE_T;  // in a stage: those of the weight, then those of the input
constexpr int ROW_BYTES = CHUNK * 2;
constexpr int STAGE_BYTES = TILE_ROWS * ROW_BYTES;  // of a group
constexpr int SUM_PITCH = TILE_W + 4;               // floats between input rows, where the parts meet
constexpr int W_TILES = WARP_W / 16, T_TILES = WARP_T / 8;

static_assert(!SIDE_BY_SIDE || GROUP_WARPS == 1, "a part that is made beside others has one warp");
static_assert(STAGES >= 2, "copies run ahead");

// Makes all copies of this thread that were committed but for the last `STAGES - 2` groups visible to its group.
__device__ __forceinline__ void wait_for_stage() {
  wait_copies<STAGES - 2>();
  if (GROUP_WARPS == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// A group's way through its chunks of k: where they come from and in which stage they lie.
struct Chunks {
  const Element* weight;  // [out_features, in_features]
  const Element* input;   // [num_rows, in_features]
  int in_features, out_features, num_rows;
  int first_w, first_t;  // of the tile
  char* stages;          // of this group, in shared memory

  // `chunk` counts from the beginning of the rows; one past their end is zeros.
  template <bool OF_WEIGHT>
  __device__ __forceinline__ void copy(int chunk, int stage) const {
    constexpr int ROWS = OF_WEIGHT ? TILE_W : TILE_T;
    const Element* const from = OF_WEIGHT ? weight : input;
    const int first = OF_WEIGHT ? first_w : first_t, end = OF_WEIGHT ? out_features : num_rows;
    char* const to = stages + stage * STAGE_BYTES + (OF_WEIGHT ? 0 : TILE_W * ROW_BYTES);
#pragma unroll
    for (int i = threadIdx.x % GROUP_THREADS; i < ROWS * PIECES; i += GROUP_THREADS) {
      const int row = first + i / PIECES, k = chunk * CHUNK + i % PIECES * PIECE;
      const bool valid = row < end && k < in_features;
      copy_16_async(to + i * 16, valid ? from + static_cast<int64>(row) * in_features + k : from, valid);
    }
  }
};

// The sums of a warp: lane g = lane / 4, q = lane % 4 holds weight rows g and g + 8 of each 16, and of each 8 input
// rows those of 2q and 2q + 1: [..][..][2 * (g + 8) + input row].
struct WarpSums {
  float part[W_TILES][T_TILES][4] = {};
  float total[W_TILES][T_TILES][4] = {};

  // part += the products of a chunk; `rows_w` and `rows_t` are this lane's first pieces in the stage.
  __device__ __forceinline__ void multiply(const char* rows_w, const char* rows_t) {
    uint4 t[T_TILES];
#pragma unroll
    for (int n = 0; n < T_TILES; n++) t[n] = load_16(rows_t + n * 8 * ROW_BYTES);
#pragma unroll
    for (int m = 0; m < W_TILES; m++) {
      const uint4 above = load_16(rows_w + m * 16 * ROW_BYTES);
      const uint4 below = load_16(rows_w + (m * 16 + 8) * ROW_BYTES);
#pragma unroll
      for (int n = 0; n < T_TILES; n++) {
        mma_16x8x16<Element>(part[m][n], {above.x, below.x, above.y, below.y}, {t[n].x, t[n].y});
        mma_16x8x16<Element>(part[m][n], {above.z, below.z, above.w, below.w}, {t[n].z, t[n].w});
      }
    }
  }

  // The part is complete: it joins those before it. The first one is taken as it is, as where parts meet at the
  // end.
  __device__ __forceinline__ void end_part(bool first) {
#pragma unroll
    for (int m = 0; m < W_TILES; m++) {
#pragma unroll
      for (int n = 0; n < T_TILES; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          total[m][n][e] = first ? part[m][n][e] : __fadd_rn(total[m][n][e], part[m][n][e]);
          part[m][n][e] = 0.0f;
        }
      }
    }
  }

  // To [TILE_T][SUM_PITCH] floats in shared memory, from weight row `w` and input row `t` of the tile on.
  __device__ __forceinline__ void store(float* to, int w, int t) const {
    const int g = threadIdx.x % WARP_SIZE / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < W_TILES; m++) {
#pragma unroll
      for (int n = 0; n < T_TILES; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          to[(t + 8 * n + 2 * q + e % 2) * SUM_PITCH + w + 16 * m + g + e / 2 * 8] = total[m][n][e];
        }
      }
    }
  }
};

// Grid: (ceil(out_features / TILE_W), ceil(num_rows / TILE_T)), NUM_THREADS threads
// Shared memory: the larger of GROUPS * STAGES * STAGE_BYTES and GROUPS * TILE_T * SUM_PITCH * 4
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    invariant_linear(Element* __restrict__ output,        // [num_rows, out_features]
                     const Element* __restrict__ weight,  // [out_features, in_features]
                     const Element* __restrict__ bias,    // [out_features], or null
                     const Element* __restrict__ input,   // [num_rows, in_features]
                     int num_rows, int in_features, int out_features) {
  extern __shared__ __align__(128) char shared[];
  let_next_kernel_start();
  const int group = threadIdx.x / GROUP_THREADS, lane = threadIdx.x % WARP_SIZE;
  const int warp = threadIdx.x % GROUP_THREADS / WARP_SIZE;
  const int part_chunks = ceil_div(ceil_div(in_features, CHUNK), PARTS);
  const Chunks chunks = {weight,
                         input,
                         in_features,
                         out_features,
                         num_rows,
                         static_cast<int>(blockIdx.x) * TILE_W,
                         static_cast<int>(blockIdx.y) * TILE_T,
                         shared + group * (STAGES * STAGE_BYTES)};
  const int first = group * part_chunks;
  const int num_chunks = SIDE_BY_SIDE ? part_chunks : PARTS * part_chunks;

  // The weight is there from the beginning; the input may still be in the making.
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < num_chunks) chunks.copy<true>(first + i, i);
  }
  wait_for_previous_kernel();
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < num_chunks) chunks.copy<false>(first + i, i);
    commit_copies();
  }

  WarpSums sums;
  const int own = lane / 4 * ROW_BYTES + lane % 4 * 16;
  const char* const own_w = chunks.stages + warp / WARPS_T * WARP_W * ROW_BYTES + own;
  const char* const own_t = chunks.stages + (TILE_W + warp % WARPS_T * WARP_T) * ROW_BYTES + own;
  int stage = 0, left = part_chunks;  // of the part
  for (int i = 0; i < num_chunks; i++) {
    wait_for_stage();  // everybody's copies are here, and nobody reads the stage that is filled next
    const int next = i + STAGES - 1, next_stage = stage == 0 ? STAGES - 1 : stage - 1;
    if (next < num_chunks) {
      chunks.copy<true>(first + next, next_stage);
      chunks.copy<false>(first + next, next_stage);
    }
    commit_copies();
    sums.multiply(own_w + stage * STAGE_BYTES, own_t + stage * STAGE_BYTES);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if (--left == 0) {
      sums.end_part(i < part_chunks);
      left = part_chunks;
    }
  }
  wait_copies<0>();
  __syncthreads();  // the stages are read to the end

  float* const meeting = reinterpret_cast<float*>(shared);  // [GROUPS][TILE_T][SUM_PITCH]
  sums.store(meeting + group * (TILE_T * SUM_PITCH), warp / WARPS_T * WARP_W, warp % WARPS_T * WARP_T);
  __syncthreads();
  for (int i = threadIdx.x; i < TILE_T * TILE_W; i += NUM_THREADS) {
    const int w = i % TILE_W, t = i / TILE_W;
    const int column = chunks.first_w + w, row = chunks.first_t + t;
    if (column >= out_features || row >= num_rows) continue;
    float sum = meeting[t * SUM_PITCH + w];
#pragma unroll
    for (int j = 1; j < GROUPS; j++) sum = __fadd_rn(sum, meeting[(j * TILE_T + t) * SUM_PITCH + w]);
    if (bias != nullptr) sum = __fadd_rn(sum, to_float(bias[column]));
    output[static_cast<int64>(row) * out_features + column] = from_float<Element>(sum);
  }
}
