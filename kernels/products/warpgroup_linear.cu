// output = residual + activation(weight * input + bias) for up to 256 tokens: the linear layers of a decode step
// with more tokens than those of small_batch_linear.cu. PAIRED rows as in activation.cuh.
//
// A thread block has TOKENS tokens and COLUMNS columns of the output. Its warpgroups share the inner dimension, and
// so do thread blocks of a cluster where it is long. All of the weights are on their way into shared memory before
// the kernel waits for the one before it (programmatic dependent launch). What is left then: 0.5 us of latency, 0.3
// us for sums and stores, and between them the tokens, which one multiprocessor gets from the L2 cache at 64 bytes
// a cycle and all together at 5.5 TB/s, with the products right behind them, and the sums of a cluster. Each thread
// block reads all of its tokens, so what counts is how few bytes that makes; and that multiprocessors are left for
// the thread blocks of the next product, which fetch their weights meanwhile (ops/products/warpgroup_plan.py).

#include "clusters/deferred_norm.cuh"
#include "common/dependent_launch.cuh"
#include "common/row_pieces.cuh"
#include "products/warpgroup_sums.cuh"

constexpr int PIECES = COLUMNS / 4;                                 // of a row: four columns
constexpr int RESULTS = ceil_div(PART_ROWS * PIECES, NUM_THREADS);  // of a thread

struct Shared {
  union {
    Tiles tiles;
    float sums[WARPGROUPS][TOKENS][SUM_STRIDE];
  };
#if CLUSTER > 1
  Meeting meeting;
#endif
  Barriers barriers;
  float row_factors[TOKENS];  // with NORM_DUE
};

// What a thread finishes: result `j` is four columns of one of the tokens of its thread block.
struct Results {
  const int first_row, first_column, out_features, num_tokens;
  uint2 shifts[RESULTS] = {}, before[RESULTS] = {}, norm_weights[RESULTS] = {};

  __device__ __forceinline__ int row(int j) const { return (threadIdx.x + j * NUM_THREADS) / PIECES; }
  __device__ __forceinline__ int column(int j) const { return (threadIdx.x + j * NUM_THREADS) % PIECES * 4; }
  __device__ __forceinline__ bool exists(int j) const {
    return row(j) < PART_ROWS && first_row + row(j) < num_tokens;
  }
  __device__ __forceinline__ int64 place(int j) const {
    return static_cast<int64>(first_row + row(j)) * out_features + first_column + column(j);
  }

  __device__ __forceinline__ void fetch_bias(const Element* bias) {
#pragma unroll
    for (int j = 0; j < RESULTS; j++) {
      shifts[j] = *reinterpret_cast<const uint2*>(bias + first_column + column(j));
    }
  }

  __device__ __forceinline__ void fetch_residual(const Element* residual) {
#pragma unroll
    for (int j = 0; j < RESULTS; j++) {
      if (exists(j)) before[j] = __ldcg(reinterpret_cast<const uint2*>(residual + place(j)));
    }
  }

  __device__ __forceinline__ void fetch_norm_weights(const Element* weight) {
#pragma unroll
    for (int j = 0; j < RESULTS; j++) {
      norm_weights[j] = *reinterpret_cast<const uint2*>(weight + first_column + column(j));
    }
  }

  __device__ __forceinline__ void weigh(int j, uint2 stream, const NormAhead& ahead) const;
};

__device__ __forceinline__ float4 four(uint2 packed) {
  float4 values;
  unpack_pair<Element>(packed.x, values.x, values.y);
  unpack_pair<Element>(packed.y, values.z, values.w);
  return values;
}

#if NORM_AHEAD
// Result j as the norm behind it is to find it; for whole warps, also those that have none.
__device__ __forceinline__ void Results::weigh(int j, uint2 stream, const NormAhead& ahead) const {
  static_assert((PIECES & (PIECES - 1)) == 0, "a row's threads are of one warp");
  float squares = 0.0f;
  if (exists(j)) {
    const float4 x = four(stream), w = four(norm_weights[j]);
    float values[4] = {x.x, x.y, x.z, x.w};
    squares = ::weigh(values, {w.x, w.y, w.z, w.w}, ahead.unit);
    *reinterpret_cast<uint2*>(ahead.rows + place(j)) =
        make_uint2(pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3]));
  }
  squares = warp_sum<PIECES / 2, 1>(squares);
  if (exists(j) && column(j) == 0) ahead.squares[blockIdx.y * num_tokens + first_row + row(j)] = squares;
}
#endif

// Four columns of a row as the activation leaves them; `factor`: of the row's sums.
__device__ __forceinline__ float4 activated(const float* parts, int row, int column, uint2 shift, float factor) {
  const auto add = [&](int from) {
    const float4 sum = add_parts<PARTS, PART_ROWS>(parts, row, from);
    return NORM_DUE ? make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor) : sum;
  };
  const float4 sum = add(column);
#if PAIRED
  return gated(sum, add(column + COLUMNS));
#else
  const float4 shifted = sum + four(shift);
  return make_float4(activate(shifted.x), activate(shifted.y), activate(shifted.z), activate(shifted.w));
#endif
}

// Grid: (CLUSTER, out_features / COLUMNS, ceil(num_tokens / TOKENS)), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS)
    warpgroup_linear(Element* output,                     // [num_tokens, out_features]; may be the residual
                     const Element* __restrict__ weight,  // [out_features, IN_FEATURES], twice the rows if PAIRED
                     const Element* bias,                 // [out_features], or null; not with PAIRED
                     const Element* input,                // [num_tokens, IN_FEATURES]
                     const Element* residual,             // [num_tokens, out_features], or null
                     int num_tokens, int out_features,
                     const NormAhead ahead,  // with NORM_AHEAD, of the output
                     const NormDue due) {    // with NORM_DUE, of the input
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  let_next_kernel_start();
  const int group = threadIdx.x / GROUP_THREADS, rank = blockIdx.x;
  const int first_column = blockIdx.y * COLUMNS, first_token = blockIdx.z * TOKENS;
  const int first_inner = rank * CHUNKS * TILE_INNER;
  if (threadIdx.x == 0) {
    init_barriers(shared.barriers);
#if CLUSTER > 1
    prepare(shared.meeting);
#endif
  }
  announce_to_cluster();
  TileCopy tokens(input + static_cast<int64>(first_token) * IN_FEATURES + first_inner, IN_FEATURES);
  if (group == FETCHING_GROUP) {
    const Element* rows = weight + static_cast<int64>(first_column) * IN_FEATURES + first_inner;
    fetch_weights<SUMS / COLUMNS>(shared.tiles, rows, static_cast<int64>(out_features) * IN_FEATURES);
  }
  Results results = {first_token + rank * PART_ROWS, first_column, out_features, num_tokens};
  if (bias != nullptr) results.fetch_bias(bias);
  if (NORM_AHEAD) results.fetch_norm_weights(ahead.weight);
  tokens.settle();
  __syncthreads();     // the barriers are there
  wait_for_cluster();  // and all of the cluster, so there is shared memory to write to

  wait_for_previous_kernel();
  if (group == FETCHING_GROUP) {
#if NORM_DUE
    RowFactors<TOKENS, GROUP_THREADS> row_factors(threadIdx.x % GROUP_THREADS);
    row_factors.load(due, first_token, num_tokens);
#endif
    fetch_tokens(shared.tiles, shared.barriers, tokens, num_tokens - first_token);
#if NORM_DUE
    row_factors.store(shared.row_factors, due);
#endif
  }
  if (residual != nullptr) results.fetch_residual(residual);
  float sums[OTHER_SIDE / 2] = {};
  if (group != FETCHING_GROUP) multiply(sums, shared.tiles, shared.barriers, group);
  __syncthreads();  // the sums take the place of tiles
  if (group != FETCHING_GROUP) store_sums(shared.sums[group][0], sums);
  __syncthreads();
#if CLUSTER > 1
  meet(shared.meeting, shared.sums[0][0], rank);
  const float* parts = shared.meeting.sums[0][0];
#else
  const float* parts = shared.sums[0][0];
#endif
#pragma unroll
  for (int j = 0; j < RESULTS; j++) {
    uint2 four_columns = {};
    if (results.exists(j)) {
      const float factor = NORM_DUE ? shared.row_factors[rank * PART_ROWS + results.row(j)] : 1.0f;
      float4 value = activated(parts, results.row(j), results.column(j), results.shifts[j], factor);
      if (residual != nullptr) {
        value = make_float4(rounded(value.x), rounded(value.y), rounded(value.z), rounded(value.w)) +
                four(results.before[j]);
      }
      four_columns = make_uint2(pack_pair<Element>(value.x, value.y), pack_pair<Element>(value.z, value.w));
      *reinterpret_cast<uint2*>(output + results.place(j)) = four_columns;
    }
#if NORM_AHEAD
    results.weigh(j, four_columns, ahead);
#endif
  }
}
