// Decode on CUDA cores: one query token per sequence against its cached keys and values, through its block table.
//
//   output[s, h] = sum_t softmax_t(rule(query[s, h] . key[t])) value[t],   t over the tokens of sequence s
//
// The op of PagedAttention (Kwon et al. 2023, arXiv 2309.06180) for every element type on every GPU, in float32
// throughout. One pass: a warp takes 32 tokens at a time and keeps the state of an online softmax (Milakov and
// Gimelshein 2018, arXiv 1805.02867), so that nothing grows with the context. Of the keys, a lane reads one token
// and has its score to itself. Of the values, it reads some dimensions of ROW_ELEMENTS tokens at a time. Both come
// in 16-byte rows just as they lie, several on their way at once, and serve all query heads that fit the registers.
//
// A batch too small for the GPU has its sequences split over the grid (flash-decoding, Dao et al. 2023): each part
// leaves its state in global memory, and the last to arrive merges them. The arrival counter wraps to zero by
// itself, so a CUDA graph can replay the launch.

#include "attention/scores.cuh"
#include "common/online_softmax.cuh"
#include "attention/simt_rows.cuh"

#ifndef NUM_WARPS
#define NUM_WARPS 4
#endif

constexpr int NUM_THREADS = NUM_WARPS * WARP_SIZE;
constexpr int ROWS = HEAD_SIZE / ROW_ELEMENTS;  // rows of keys, and of values, per lane and step
constexpr int STEP_TOKENS = WARP_SIZE;
constexpr int DIM_LANES = STEP_TOKENS / ROW_ELEMENTS;  // neighbouring lanes that hold the same dimensions of values

constexpr int MAX_HEADS = ROWS > 32 ? 1 : ROWS > 16 ? 2 : 4;  // as many sums as registers allow
constexpr int PASSES = ceil_div(GROUP_SIZE, MAX_HEADS);       // thread blocks that share the heads of a large group
constexpr int HEADS = ceil_div(GROUP_SIZE, PASSES);           // query heads of a thread block

__host__ __device__ constexpr int rows_at_once(int most) {
  return ROWS % most == 0 ? most : rows_at_once(most - 1);
}
#if __CUDA_ARCH__ >= 800
constexpr int BATCH = rows_at_once(8);  // rows on their way at once
#else
constexpr int BATCH = rows_at_once(ROWS > 32 ? 4 : 8);  // so that sm_75 has registers for all
#endif
constexpr int BATCHES = ROWS / BATCH;

struct Shared {
  float4 query[HEADS][HEAD_SIZE / 4];
  float output[NUM_WARPS][HEADS][HEAD_SIZE];
  float m[NUM_WARPS][HEADS];
  float l[NUM_WARPS][HEADS];
  bool is_last;
};

// One KV head of one sequence.
struct Context {
  const Element* key_cache;    // [num_blocks, num_kv_heads, head_size / x, block_size, x], moved to the KV head
  const Element* value_cache;  // [num_blocks, num_kv_heads, head_size, block_size], moved to the KV head
  int64 key_stride;            // elements between blocks
  int64 value_stride;
  const int* block_table;  // [ceil(end / block_size)]
  int begin, end;          // tokens seen

  // Block of a token, of the last one for those behind it.
  __device__ __forceinline__ int block_of(int token) const {
    return __ldg(block_table + min(token, end - 1) / BLOCK_SIZE);
  }
};

__device__ __forceinline__ void load_rows(uint4 (&rows)[BATCH], const Element* from, int stride) {
#pragma unroll
  for (int i = 0; i < BATCH; i++) rows[i] = load_once(from + i * stride);
}

// A warp's heads: states, scores and sums.
struct WarpAttention {
  SoftmaxState state[HEADS];  // m the same in all lanes, l of this lane's tokens
  float output[HEADS][ROWS];  // dimension lane / DIM_LANES + ROW_ELEMENTS * i, of this lane's tokens
  float slope[HEADS];

  __device__ __forceinline__ WarpAttention() : output{} {}

  // Products of a lane's token with the heads' queries, in four sums each: they wait less for one another, and the
  // shorter a sum the smaller its rounding.
  __device__ __forceinline__ static void multiply_keys(float4 (&products)[HEADS], const uint4 (&rows)[BATCH],
                                                       const Shared& shared, int first_row) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
#pragma unroll
      for (int part = 0; part < ROW_FLOAT4S; part++) {
        const float4 k = row_part(rows[i], part);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
          const float4 q = shared.query[h][(first_row + i) * ROW_FLOAT4S + part];
          products[h].x += k.x * q.x;
          products[h].y += k.y * q.y;
          products[h].z += k.z * q.z;
          products[h].w += k.w * q.w;
        }
      }
    }
  }

  // A score per lane -> its weight.
  __device__ __forceinline__ float weigh(float score, int head) {
    const float before = state[head].m;
    const float factor = state[head].raise(warp_max(score));
    if (state[head].m > before) {
#pragma unroll
      for (int i = 0; i < ROWS; i++) output[head][i] *= factor;
    }
    return state[head].add(score);
  }

  __device__ __forceinline__ void multiply_values(const float (&weights)[HEADS][ROW_ELEMENTS],
                                                  const uint4 (&rows)[BATCH], const RowMask& mask, int first_row) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const uint4 row = mask(rows[i]);
#pragma unroll
      for (int e = 0; e < ROW_ELEMENTS; e++) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) output[h][first_row + i] += row_element(row, e) * weights[h][e];
      }
    }
  }

  // Tokens `first`, ..., `first + STEP_TOKENS - 1`; `block` is that of this lane's token.
  __device__ __forceinline__ void step(const Context& context, const ScoreScale& scale, const Shared& shared,
                                       int first, int block) {
    const int lane = threadIdx.x % WARP_SIZE;
    const int token = first + lane;
    const int offset = min(token, context.end - 1) % BLOCK_SIZE;
    const Element* keys = context.key_cache + block * context.key_stride + offset * ROW_ELEMENTS;
    const int value_lane = lane % DIM_LANES * ROW_ELEMENTS;  // the lane whose token is the first of this one's rows
    const int value_block = __shfl_sync(FULL_WARP, block, value_lane);
    const Element* values = context.value_cache + value_block * context.value_stride +
                            lane / DIM_LANES * BLOCK_SIZE + value_lane % BLOCK_SIZE;

    uint4 rows[BATCH];
    float4 products[HEADS] = {};
#pragma unroll
    for (int b = 0; b < BATCHES; b++) {
      load_rows(rows, keys + b * BATCH * BLOCK_SIZE * ROW_ELEMENTS, BLOCK_SIZE * ROW_ELEMENTS);
      multiply_keys(products, rows, shared, b * BATCH);
    }
    load_rows(rows, values, ROW_ELEMENTS * BLOCK_SIZE);  // on their way during the softmax

    float weights[HEADS][ROW_ELEMENTS];
    const bool seen = token >= context.begin && token < context.end;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const float product = products[h].x + products[h].y + (products[h].z + products[h].w);
      const float score = scale.score(product, slope[h], token - (context.end - 1));
      const float weight = weigh(seen ? score : NEGATIVE_INFINITY, h);
#pragma unroll
      for (int e = 0; e < ROW_ELEMENTS; e++) weights[h][e] = __shfl_sync(FULL_WARP, weight, value_lane + e);
    }
    const RowMask mask(first + value_lane, context.begin, context.end);
#pragma unroll
    for (int b = 0; b < BATCHES; b++) {
      if (b > 0) load_rows(rows, values + b * BATCH * ROW_ELEMENTS * BLOCK_SIZE, ROW_ELEMENTS * BLOCK_SIZE);
      multiply_values(weights, rows, mask, b * BATCH);
    }
  }

  // Every NUM_WARPS-th step from `first` on.
  __device__ __forceinline__ void attend(const Context& context, const ScoreScale& scale, const Shared& shared,
                                         int first, int end) {
    const int lane = threadIdx.x % WARP_SIZE;
    if (first >= end) return;
    int block = context.block_of(first + lane);
    for (; first < end; first += NUM_WARPS * STEP_TOKENS) {
      const int next_block = context.block_of(first + NUM_WARPS * STEP_TOKENS + lane);
      step(context, scale, shared, first, block);
      block = next_block;
    }
  }

  // The sums over the warp's tokens, to shared memory.
  __device__ __forceinline__ void share(Shared& shared) {
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const float l = warp_sum(state[h].l);
      if (lane == 0) shared.m[warp][h] = state[h].m, shared.l[warp][h] = l;
#pragma unroll
      for (int i = 0; i < ROWS; i++) {
        const float sum = warp_sum<DIM_LANES / 2, 1>(output[h][i]);
        if (lane % DIM_LANES == 0) shared.output[warp][h][lane / DIM_LANES + ROW_ELEMENTS * i] = sum;
      }
    }
  }
};

__device__ __forceinline__ void load_query(Shared& shared, const Element* query, int64 head_stride, int num_heads) {
  for (int i = threadIdx.x; i < num_heads * ROWS; i += NUM_THREADS) {
    const uint4 row = load_16(query + i / ROWS * head_stride + i % ROWS * ROW_ELEMENTS);
#pragma unroll
    for (int part = 0; part < ROW_FLOAT4S; part++) {
      shared.query[i / ROWS][i % ROWS * ROW_FLOAT4S + part] = row_part(row, part);
    }
  }
}

// Which tokens a part of a sequence is: whole steps, the parts as even as that allows.
struct Part {
  int first, end, num_parts;

  __device__ __forceinline__ Part(const Context& context, int part, int max_parts, int min_steps) {
    const int start = context.begin / BLOCK_SIZE * BLOCK_SIZE;
    const int num_steps = ceil_div(context.end - start, STEP_TOKENS);
    const int steps = max(min_steps, ceil_div(num_steps, max_parts));
    num_parts = max(1, ceil_div(num_steps, steps));
    first = start + part * steps * STEP_TOKENS;
    end = min(first + steps * STEP_TOKENS, context.end);
  }
};

// Grid: (num_kv_heads * PASSES, max_parts, num_seqs), NUM_WARPS * 32 threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS) decode_simt(
    Element* __restrict__ output,           // [num_seqs, num_heads, head_size], strided
    float* __restrict__ lse,                // [num_seqs, num_heads], or null
    float* __restrict__ part_output,        // [num_seqs, num_heads, max_parts, head_size]; unused if max_parts is 1
    float2* __restrict__ part_state,        // [num_seqs, num_heads, max_parts]: m, l; likewise
    uint32* __restrict__ arrivals,          // [num_seqs, num_kv_heads * PASSES], zero before and after; likewise
    const Element* __restrict__ query,      // [num_seqs, num_heads, head_size], strided
    const Element* __restrict__ key_cache,  // [num_blocks, num_kv_heads, head_size / x, block_size, x]
    const Element* __restrict__ value_cache,  // [num_blocks, num_kv_heads, head_size, block_size]
    const int* __restrict__ block_tables,     // [num_seqs, max_blocks_per_seq]
    const int* __restrict__ seq_lens,         // [num_seqs]
    const float* __restrict__ alibi_slopes,   // [num_heads], or null
    const float* __restrict__ sinks,          // [num_heads], or null
    int max_blocks_per_seq, int num_kv_heads, int min_steps_per_part, int64 key_block_stride,
    int64 value_block_stride,                             // elements
    int64 query_token_stride, int64 query_head_stride,    // elements
    int64 output_token_stride, int64 output_head_stride,  // elements
    int sliding_window, float softmax_scale, float soft_cap) {
  __shared__ Shared shared;
  const int64 seq = blockIdx.z;
  const int part = blockIdx.y, max_parts = gridDim.y;
  const int kv_head = blockIdx.x / PASSES, first_in_group = blockIdx.x % PASSES * HEADS;
  const int64 first_head = kv_head * GROUP_SIZE + first_in_group;
  const int num_heads = min(HEADS, GROUP_SIZE - first_in_group);  // the last of the passes may have fewer

  const int64 head_offset = static_cast<int64>(kv_head) * HEAD_SIZE * BLOCK_SIZE;
  const int seq_len = seq_lens[seq];
  const Context context{key_cache + head_offset,
                        value_cache + head_offset,
                        key_block_stride,
                        value_block_stride,
                        block_tables + seq * max_blocks_per_seq,
                        first_seen(seq_len - 1, sliding_window),
                        seq_len};
  const Part tokens(context, part, max_parts, min_steps_per_part);
  if (part >= tokens.num_parts) return;

  load_query(shared, query + seq * query_token_stride + first_head * query_head_stride, query_head_stride,
             num_heads);
  WarpAttention warp;
#pragma unroll
  for (int h = 0; h < HEADS; h++) warp.slope[h] = h < num_heads ? load_slope(alibi_slopes, first_head + h) : 0.0f;
  __syncthreads();
  warp.attend(context, ScoreScale(softmax_scale, soft_cap), shared,
              tokens.first + threadIdx.x / WARP_SIZE * STEP_TOKENS, tokens.end);
  warp.share(shared);
  __syncthreads();

  const int64 first_row = seq * num_kv_heads * GROUP_SIZE + first_head;  // of [num_seqs, num_heads]
  const auto write = [&](PartialOutput sum, int head, int dim) {
    if (SINKS) sum.o *= sum.state.add_sink(load_sink(sinks, first_head + head));
    Element* to = output + seq * output_token_stride + (first_head + head) * output_head_stride;
    to[dim] = from_float<Element>(sum.o * sum.state.inverse_sum());
    if (lse != nullptr && dim == 0) lse[first_row + head] = sum.state.log_sum_exp();
  };
  for (int i = threadIdx.x; i < num_heads * HEAD_SIZE; i += NUM_THREADS) {
    const int head = i / HEAD_SIZE, dim = i % HEAD_SIZE;
    PartialOutput sum;
#pragma unroll
    for (int w = 0; w < NUM_WARPS; w++)
      sum.merge(shared.m[w][head], shared.l[w][head], shared.output[w][head][dim]);
    if (tokens.num_parts == 1) {
      write(sum, head, dim);
    } else {
      const int64 place = (first_row + head) * max_parts + part;
      __stcg(part_output + place * HEAD_SIZE + dim, sum.o);
      if (dim == 0) __stcg(part_state + place, make_float2(sum.state.m, sum.state.l));
    }
  }
  if (tokens.num_parts == 1) return;

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32 last = tokens.num_parts - 1;
    shared.is_last = atomicInc(arrivals + seq * gridDim.x + blockIdx.x, last) == last;
  }
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence();
  for (int i = threadIdx.x; i < num_heads * HEAD_SIZE; i += NUM_THREADS) {
    const int head = i / HEAD_SIZE, dim = i % HEAD_SIZE;
    const int64 place = (first_row + head) * max_parts;
    PartialOutput sum;
#pragma unroll 4
    for (int p = 0; p < tokens.num_parts; p++) {
      const float2 state = __ldcg(part_state + place + p);
      sum.merge(state.x, state.y, __ldcg(part_output + (place + p) * HEAD_SIZE + dim));
    }
    write(sum, head, dim);
  }
}
