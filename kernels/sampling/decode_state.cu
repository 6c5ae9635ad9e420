// What decode steps keep on the device from one to the next, where the products go through somebody else's kernels:
// the slots that a step's tokens go to, and its most likely tokens, which become the input of the next step.
// next_token.cu does the second together with the last product, for a few sequences. Prompts have no such state: of
// theirs the most likely tokens are just found.

#include "common/argmax.cuh"
#include "common/dependent_launch.cuh"
#include "sampling/next_state.cuh"

constexpr int NUM_THREADS = 512;
constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
constexpr int PIECES_AHEAD = 7;  // loads under way in each thread: half a row of 50,000
constexpr int STRIDE = NUM_THREADS * ROW_ELEMENTS;

// Grid: (ceil(num_seqs / threads)), any number of threads.
extern "C" __global__ void find_slots(int64* __restrict__ slots,             // [num_seqs]; -1 for padding
                                      const int* __restrict__ positions,     // [num_seqs]; below 0: padding
                                      const int* __restrict__ block_tables,  // [num_seqs, max_blocks_per_seq]
                                      int num_seqs, int max_blocks_per_seq, int block_size) {
  const int seq = blockIdx.x * blockDim.x + threadIdx.x;
  if (seq >= num_seqs) return;
  const int position = positions[seq];
  int64 slot = -1;
  if (position >= 0) {
    const int64 block = block_tables[static_cast<int64>(seq) * max_blocks_per_seq + position / block_size];
    slot = block * block_size + position % block_size;
  }
  slots[seq] = slot;
}

// The largest of the elements seen so far, the first of equals.
struct Best {
  float value = NEGATIVE_INFINITY;
  int row = -1;

  __device__ __forceinline__ void see(float other, int its_row) {
    if (other <= value && row >= 0) return;
    value = other;
    row = its_row;
  }
};

// Of the elements that thread `threadIdx.x` reads in a row: 16 bytes at a time where rows allow it, many of them
// under way.
__device__ __forceinline__ uint64 best_of_thread(const Element* row, int vocab_size) {
  Best best;
  if (vocab_size % ROW_ELEMENTS == 0) {
    for (int first = threadIdx.x * ROW_ELEMENTS; first < vocab_size; first += PIECES_AHEAD * STRIDE) {
      uint4 pieces[PIECES_AHEAD];
#pragma unroll
      for (int p = 0; p < PIECES_AHEAD; p++) {
        if (first + p * STRIDE < vocab_size) pieces[p] = load_in_order(row + first + p * STRIDE);
      }
#pragma unroll
      for (int p = 0; p < PIECES_AHEAD; p++) {
        if (first + p * STRIDE >= vocab_size) break;
        const Element* values = reinterpret_cast<const Element*>(&pieces[p]);
#pragma unroll
        for (int j = 0; j < ROW_ELEMENTS; j++) best.see(to_float(values[j]), first + p * STRIDE + j);
      }
    }
  } else {
    for (int i = threadIdx.x; i < vocab_size; i += NUM_THREADS) best.see(to_float(row[i]), i);
  }
  return best.row < 0 ? 0 : argmax_key(best.value, best.row);
}

// The row of the largest element, the first of equals, which thread 0 of the thread block gets.
__device__ __forceinline__ int most_likely_of(const Element* row, int vocab_size) {
  __shared__ uint64 best_of_warp[NUM_WARPS];
  uint64 best = best_of_thread(row, vocab_size);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) best = max(best, __shfl_xor_sync(FULL_WARP, best, lanes));
  if (threadIdx.x % WARP_SIZE == 0) best_of_warp[threadIdx.x / WARP_SIZE] = best;
  __syncthreads();
  if (threadIdx.x > 0) return 0;
#pragma unroll
  for (int warp = 1; warp < NUM_WARPS; warp++) best = max(best, best_of_warp[warp]);
  return argmax_row(best);
}

// Grid: (num_seqs), NUM_THREADS threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    most_likely_tokens(int* __restrict__ tokens,  // [num_seqs]
                       const Element* logits,     // [num_seqs, vocab_size]
                       int vocab_size) {
  const int seq = blockIdx.x;
  const int likely = most_likely_of(logits + static_cast<int64>(seq) * vocab_size, vocab_size);
  if (threadIdx.x == 0) tokens[seq] = likely;
}

// Grid: (num_seqs), NUM_THREADS threads.
extern "C" __global__ void __launch_bounds__(NUM_THREADS)
    argmax_rows(int* __restrict__ token_ids,    // [num_seqs]: the next tokens
                int* __restrict__ positions,    // [num_seqs]: moved on, where not below 0
                int* __restrict__ seq_lens,     // [num_seqs]: moved on, likewise
                int* __restrict__ history,      // [history_len, num_seqs]: the tokens of the last steps
                int* __restrict__ step,         // [1]: moved on; says where in the history
                uint32* __restrict__ arrivals,  // [1], zero before and after
                const Element* logits,          // [num_seqs, vocab_size]
                int vocab_size, int history_len) {
  const int seq = blockIdx.x, num_seqs = gridDim.x;
  const NextState next = {token_ids, positions, seq_lens, history, step, arrivals, num_seqs, history_len};
  wait_for_previous_kernel();
  NextState::Before before = {};
  if (threadIdx.x == 0) before = next.look(seq);
  const int token = most_likely_of(logits + static_cast<int64>(seq) * vocab_size, vocab_size);
  if (threadIdx.x == 0) next.take(seq, token, before);
}
