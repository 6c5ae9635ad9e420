// What decode steps leave for the next one where a thread block chooses the token of a row: the rows and how many
// steps there were. Where thread blocks share rows, products/best_rows.cuh does the same.

#pragma once

#include "common/common.cuh"

struct NextState {
  int* token_ids;    // [num_seqs]: the next tokens
  int* positions;    // [num_seqs]: moved on, where not below 0
  int* seq_lens;     // [num_seqs]: moved on, likewise
  int* history;      // [history_len, num_seqs]: the tokens of the last steps
  int* step;         // [1]: moved on; says where in the history
  uint32* arrivals;  // [1], zero before and after
  int num_seqs, history_len;

  // What a row's thread asks for ahead of its token.
  struct Before {
    int step, position, seq_len;
  };
  __device__ __forceinline__ Before look(int seq) const { return {*step, positions[seq], seq_lens[seq]}; }

  // By one thread for each row.
  __device__ __forceinline__ void take(int seq, int token, const Before& before) const {
    history[static_cast<int64>(before.step % history_len) * num_seqs + seq] = token;
    token_ids[seq] = token;
    if (before.position >= 0) {
      positions[seq] = before.position + 1;
      seq_lens[seq] = before.seq_len + 1;
    }
    __threadfence();  // everybody has read the step before the last one moves it on
    if (atomicInc(arrivals, num_seqs - 1) == num_seqs - 1) *step = before.step + 1;
  }
};
