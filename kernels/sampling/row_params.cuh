// How a row of logits is sampled.

#pragma once

#include "sampling/penalties.cuh"

// As pagedchat/ops/sampling/sample_rows.py packs it.
struct RowParams {
  float scale;  // log2(e) / temperature; 0: the most likely token
  int top_k;    // 0: no limit; below 0: the token that is there stays
  float top_p;  // 1: no limit
  uint32 min_key;
  float repetition_penalty, reciprocal_penalty, presence_penalty, frequency_penalty;
  int64 counts_row;  // below 0: no penalties
  uint64 seed;

  // Of a row of the batch, by the counts of all.
  __device__ __forceinline__ short* counts_in(short* counts, int vocab_size) const {
    return counts == nullptr || counts_row < 0 ? nullptr : counts + counts_row * vocab_size;
  }
  __device__ __forceinline__ Penalties penalties(const short* own_counts) const {
    return {repetition_penalty, reciprocal_penalty, presence_penalty, frequency_penalty, own_counts};
  }
};
