// What `heads_to_cache` does, into a paged cache of one byte an element (byte_elements.cuh; PagedAttention, Kwon et
// al. 2023, arXiv 2309.06180): queries and keys are normed, if the model does that (norm_kinds.cuh), and turned by
// their position (Su et al. 2021, arXiv 2104.09864), all of a head or its first elements; keys and values are
// brought into bytes, with a scale for each token and KV head, and put into their slots. A warp has a head
// (byte_heads.cuh).
//
// Queries stay where they are. What is made is rounded to ELEMENT where the models' own code rounds it.
//
// Constants: ELEMENT, HEAD_SIZE, BLOCK_SIZE, CACHE_KIND (1 or 2), and as in heads_to_cache.cu ROTARY, HEAD_NORM (0,
// 1 or 3), NORM, TURNED and BY_SLOT.

#include "cache/byte_heads.cuh"
#include "common/dependent_launch.cuh"
#include "common/norm_kinds.cuh"

#ifndef ROTARY
#define ROTARY 0
#endif
#ifndef HEAD_NORM
#define HEAD_NORM \
  0  // 1: every head of queries and keys is a row to be normed, 3: every head, by weights of its own
#endif
#ifndef NORM
#define NORM 2  // a NormKind
#endif
#ifndef TURNED
#define TURNED HEAD_SIZE  // elements of a head
#endif
#ifndef BY_SLOT
#define BY_SLOT 0
#endif

constexpr int HALF_TURNED = TURNED / 2;
static_assert(HEAD_NORM != 2, "a norm over all heads needs more than a warp");
static_assert(TURNED <= HEAD_SIZE, "no more than there is");

__device__ __forceinline__ float rounded(float x) { return to_float(from_float<Element>(x)); }

// `weight` and `bias` are those of this head, [HEAD_SIZE]; `bias` of a LayerNorm, or null.
__device__ __forceinline__ void norm(Head& head, const Element* weight, const Element* bias, float epsilon) {
  float mean = 0.0f, squares = 0.0f;
  if (NORM == LAYER_NORM) {
    float sum = 0.0f;
    head.for_each([&](int, float& x) { sum += x; });
    mean = warp_sum(sum) / HEAD_SIZE;
  }
  head.for_each([&](int, float& x) { squares += (x - mean) * (x - mean); });
  const float factor = rsqrtf(warp_sum(squares) / HEAD_SIZE + epsilon);
  head.for_each([&](int element, float& x) {
    const float shift = NORM == LAYER_NORM && bias != nullptr ? to_float(bias[element]) : 0.0f;
    x = rounded(scaled_by_norm<NORM>((x - mean) * factor, to_float(weight[element]), shift));
  });
}

// `shared` is this warp's own, [HEAD_SIZE].
__device__ __forceinline__ void turn(Head& head, const float2* turns, float* shared) {
  head.for_each([&](int element, float& x) { shared[element] = x; });
  __syncwarp();
  head.for_each([&](int element, float& x) {
    if (element >= TURNED) return;
    const bool is_first = element < HALF_TURNED;
    const float2 t = turns[is_first ? element : element - HALF_TURNED];
    const float other = shared[is_first ? element + HALF_TURNED : element - HALF_TURNED];
    x = rounded(is_first ? x * t.x - other * t.y : x * t.x + other * t.y);
  });
}

// Grid: (num_tokens, ceil(heads / BYTE_WARPS)), BYTE_WARPS * 32 threads; the heads from `first_head` on
extern "C" __global__ void __launch_bounds__(BYTE_WARPS* WARP_SIZE) heads_to_bytes(
    Element* heads,                            // [num_tokens, num_heads + 2 * num_kv_heads, HEAD_SIZE]
    Cached* __restrict__ key_cache,            // [num_blocks, num_kv_heads, HEAD_SIZE / 16, BLOCK_SIZE, 16], scales
    Cached* __restrict__ value_cache,          // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE], scales
    const int* __restrict__ block_tables,      // [num_tokens, max_blocks_per_seq]; BY_SLOT: [num_tokens] slots,
                                               // int64, below 0 for padding
    const int* __restrict__ positions,         // [num_tokens]; below 0: the token is padding and is not written
    const float2* __restrict__ rotations,      // [max_positions, TURNED / 2] cosine and sine, with ROTARY;
                                               // BY_SLOT: [num_tokens, TURNED / 2]
    const Element* __restrict__ query_weight,  // [HEAD_SIZE], with HEAD_NORM; with 3 [num_heads, HEAD_SIZE]
    const Element* __restrict__ key_weight,    // the same of the keys' norm
    const Element* __restrict__ query_bias,    // like the weights, of LayerNorms, or null
    const Element* __restrict__ key_bias, int first_head, int num_heads, int num_kv_heads, int max_blocks_per_seq,
    int64 key_block_stride,
    int64 value_block_stride,  // bytes
    float query_epsilon, float key_epsilon) {
  __shared__ float shared[BYTE_WARPS][HEAD_SIZE];
  let_next_kernel_start();
  const int64 token = blockIdx.x;
#if BY_SLOT
  const int64 place = reinterpret_cast<const int64*>(block_tables)[token];
  const int64 position = place < 0 ? -1 : token;  // of its angles
  const int64 block = place / BLOCK_SIZE;
  const int slot = place < 0 ? 0 : place % BLOCK_SIZE;
#else
  // Before the wait: the block table does not change while a step runs.
  const int64 position = positions[token];
  const int64 block = position < 0 ? 0 : block_tables[token * max_blocks_per_seq + position / BLOCK_SIZE];
  const int slot = position < 0 ? 0 : position % BLOCK_SIZE;
#endif
  const int warp = threadIdx.x / WARP_SIZE, index = first_head + blockIdx.y * BYTE_WARPS + warp;
  wait_for_previous_kernel();
  if (position < 0 || index >= num_heads + 2 * num_kv_heads) return;
  Element* mine = heads + (token * (num_heads + 2 * num_kv_heads) + index) * HEAD_SIZE;
  Head head;
  head.load(mine);
  const bool is_query = index < num_heads;
  if (index < num_heads + num_kv_heads) {
#if HEAD_NORM
    const Element* weight = is_query ? query_weight : key_weight;
    const Element* bias = is_query ? query_bias : key_bias;
    const int own = HEAD_NORM == 3 ? (is_query ? index : index - num_heads) * HEAD_SIZE : 0;
    norm(head, weight + own, bias == nullptr ? bias : bias + own, is_query ? query_epsilon : key_epsilon);
#endif
    if (ROTARY) turn(head, rotations + position * HALF_TURNED, shared[warp]);
  }
  if (is_query) {
    head.store(mine);
    return;
  }
  const bool is_key = index < num_heads + num_kv_heads;
  Cached* page = is_key ? key_cache + block * key_block_stride : value_cache + block * value_block_stride;
  keep_in_page(head, page, num_kv_heads, index - num_heads - (is_key ? 0 : num_kv_heads), slot, is_key);
}
