// What `reshape_and_cache` does, into a paged cache of one byte an element (byte_elements.cuh; PagedAttention, Kwon
// et al. 2023, arXiv 2309.06180): keys and values of new tokens are brought into bytes, with a scale for each token
// and KV head, and put into their slots, each head by a warp (byte_heads.cuh).
//
// Constants: ELEMENT, HEAD_SIZE, BLOCK_SIZE, CACHE_KIND (1 or 2).

#include "cache/byte_heads.cuh"
#include "common/dependent_launch.cuh"

// Grid: (num_tokens, ceil(2 * num_kv_heads / BYTE_WARPS)), BYTE_WARPS * 32 threads
extern "C" __global__ void __launch_bounds__(BYTE_WARPS* WARP_SIZE) rows_to_bytes(
    Cached* __restrict__ key_cache,          // [num_blocks, num_kv_heads, HEAD_SIZE / 16, BLOCK_SIZE, 16], scales
    Cached* __restrict__ value_cache,        // [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE], scales
    const Element* __restrict__ key,         // [num_tokens, num_kv_heads, HEAD_SIZE]
    const Element* __restrict__ value,       // [num_tokens, num_kv_heads, HEAD_SIZE]
    const int64* __restrict__ slot_mapping,  // [num_tokens], -1: skip
    int num_kv_heads, int64 key_block_stride,
    int64 value_block_stride,  // bytes
    int64 key_token_stride, int64 key_head_stride, int64 value_token_stride,
    int64 value_head_stride) {  // elements
  let_next_kernel_start();
  const int64 token = blockIdx.x, place = slot_mapping[token];
  const int index = blockIdx.y * BYTE_WARPS + threadIdx.x / WARP_SIZE;
  wait_for_previous_kernel();
  if (place < 0 || index >= 2 * num_kv_heads) return;
  const bool is_key = index < num_kv_heads;
  const int kv_head = index % num_kv_heads;
  Head head;
  head.load(is_key ? key + token * key_token_stride + kv_head * key_head_stride
                   : value + token * value_token_stride + kv_head * value_head_stride);
  const int64 block = place / BLOCK_SIZE;
  Cached* page = is_key ? key_cache + block * key_block_stride : value_cache + block * value_block_stride;
  keep_in_page(head, page, num_kv_heads, kv_head, place % BLOCK_SIZE, is_key);
}
