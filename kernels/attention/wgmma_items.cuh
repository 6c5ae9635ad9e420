// The pieces of work of a varlen prefill, in the order in which a persistent grid takes them.
//
// The query rows of a sequence are its (token, head of the group) pairs, token-major, cut into tiles of TILE_ROWS;
// an item is one tile against one KV head. Within a sequence the last tile, which sees the most keys, comes first,
// and its KV heads are neighbours, so that thread blocks that run side by side read the same block table and end
// together.
//
// Thread block c takes items c, 2n - 1 - c, 2n + c, 4n - 1 - c, ... of n thread blocks: forth and back, because the
// items grow lighter along the way.

#pragma once

#include "common/common.cuh"

struct Item {
  int kv_head;  // < 0: there is no item left
  int sequence;
  int first_token;  // of the sequence, in the batch
  int num_rows;     // of the sequence: tokens * GROUP_SIZE
  int first_row;    // of the tile
  int context;      // tokens before the first query
};

class ItemList {
 public:
  __device__ __forceinline__ ItemList(const int* cu_seqlens_q, const int* seq_lens, int num_seqs, int num_kv_heads)
      : cu_seqlens_q_(cu_seqlens_q), seq_lens_(seq_lens), num_seqs_(num_seqs), num_kv_heads_(num_kv_heads) {}

  // The next item of this thread block; all lanes of a warp call it and get the same.
  __device__ __forceinline__ Item next() {
    const int width = gridDim.x;
    const int column = turn_ % 2 == 0 ? blockIdx.x : width - 1 - blockIdx.x;
    return find(turn_++ * width + column);
  }

 private:
  // Items are asked for in rising order, so the sequences passed stay passed: 32 at a time, one to a lane.
  __device__ __forceinline__ Item find(int index) {
    const int lane = threadIdx.x % WARP_SIZE;
    for (; passed_seqs_ < num_seqs_; passed_seqs_ += WARP_SIZE) {
      const int sequence = passed_seqs_ + lane;
      const bool real = sequence < num_seqs_;
      const int start = real ? cu_seqlens_q_[sequence] : 0;
      const int length = real ? cu_seqlens_q_[sequence + 1] - start : 0;
      const int items = ceil_div(length * GROUP_SIZE, TILE_ROWS) * num_kv_heads_;
      int upto = items;
#pragma unroll
      for (int step = 1; step < WARP_SIZE; step *= 2) {
        const int before = __shfl_up_sync(FULL_WARP, upto, step);
        if (lane >= step) upto += before;
      }
      const int here = __shfl_sync(FULL_WARP, upto, WARP_SIZE - 1);
      if (index < passed_items_ + here) {
        const int owner = __ffs(__ballot_sync(FULL_WARP, index < passed_items_ + upto)) - 1;
        const int within = index - passed_items_ - __shfl_sync(FULL_WARP, upto - items, owner);
        const int context = real ? seq_lens_[sequence] - length : 0;
        const int tiles_passed = within / num_kv_heads_;
        Item item;
        item.kv_head = within - tiles_passed * num_kv_heads_;
        item.sequence = passed_seqs_ + owner;
        item.first_token = __shfl_sync(FULL_WARP, start, owner);
        item.num_rows = __shfl_sync(FULL_WARP, length, owner) * GROUP_SIZE;
        item.first_row = (ceil_div(item.num_rows, TILE_ROWS) - 1 - tiles_passed) * TILE_ROWS;
        item.context = __shfl_sync(FULL_WARP, context, owner);
        return item;
      }
      passed_items_ += here;
    }
    Item none = {};
    none.kv_head = -1;
    return none;
  }

  const int* cu_seqlens_q_;
  const int* seq_lens_;
  int num_seqs_, num_kv_heads_;
  int turn_ = 0, passed_seqs_ = 0, passed_items_ = 0;
};

// The key tiles that an item's rows see, from `first` to `last`, the highest first.
struct KeyRange {
  int first, last;
  int end;          // keys from here on are seen by no row of the item
  int masked_from;  // tiles from here on hold keys that some row must not see, and so do those up to `masked_to`
  int masked_to;

  KeyRange() = default;
  __device__ __forceinline__ KeyRange(const Item& item, int sliding_window) {
    const int low = item.context + item.first_row / GROUP_SIZE;
    const int last_row = min(item.first_row + TILE_ROWS, item.num_rows) - 1;
    const int high = item.context + last_row / GROUP_SIZE;
    end = max(high + 1, 0);
    last = max(high, 0) / TILE_KEYS;
    first = max(low - sliding_window + 1, 0) / TILE_KEYS;
    masked_from = (low + 1) / TILE_KEYS;
    masked_to = high - sliding_window < 0 ? -1 : (high - sliding_window) / TILE_KEYS;
  }
};
