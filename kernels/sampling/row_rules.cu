// What rules of its own make of each row of logits, before tokens are drawn from it: tokens that are never chosen,
// or not yet, tokens that alone may be chosen, and numbers that are added to logits.
//
//   ruled[token] = logit + bias              where the row has an entry for the token,
//                  minus infinity            for an entry whose token may not come before a position, until then,
//                  logit, or minus infinity  for all others: the latter in a row that only takes tokens with
//                  entries
//
// A token has one entry in a row at most, so that entries may be taken in any order. Rows without a rule are
// copied. Several thread blocks share a row, so that loads of all of it are under way at a time; each goes through
// all entries of the row for those of its part.

#include "common/common.cuh"

constexpr int NUM_THREADS = 1024;
constexpr int TOKENS_EACH = 8;  // of a thread; as pagedchat/ops/sampling/row_rules.py says
constexpr int PART = NUM_THREADS * TOKENS_EACH;

struct RowEntries {
  int first, count;  // its entries
  int closed;        // 1: no token without an entry
};

struct Entry {
  int token;
  float bias;
  int until;  // the first position at which the token may be
};

// Grid: (ceil(vocab_size / PART), num_rows), NUM_THREADS threads
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    row_rules(float* __restrict__ ruled,            // [num_rows, vocab_size]
              const Element* __restrict__ logits,   // [num_rows, vocab_size], strided
              const RowEntries* __restrict__ rows,  // [num_rows]
              const Entry* __restrict__ entries,    // of all rows
              const int* __restrict__ positions,    // [num_rows]: of the tokens to be drawn, in their sequences
              int vocab_size, int64 row_stride) {
  const Element* row = logits + blockIdx.y * row_stride;
  float* result = ruled + static_cast<int64>(blockIdx.y) * vocab_size;
  const RowEntries of_row = rows[blockIdx.y];
  const int position = positions[blockIdx.y], begin = blockIdx.x * PART, end = min(begin + PART, vocab_size);
#pragma unroll
  for (int j = 0; j < TOKENS_EACH; j++) {
    const int token = begin + j * NUM_THREADS + threadIdx.x;
    if (token < end) result[token] = of_row.closed ? NEGATIVE_INFINITY : to_float(row[token]);
  }
  __syncthreads();  // entries come after the copy
  for (int i = threadIdx.x; i < of_row.count; i += NUM_THREADS) {
    const Entry entry = entries[of_row.first + i];
    if (entry.token < begin || entry.token >= end) continue;
    const float logit = to_float(row[entry.token]);
    result[entry.token] = position < entry.until ? NEGATIVE_INFINITY : __fadd_rn(logit, entry.bias);
  }
}
