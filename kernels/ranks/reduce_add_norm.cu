// A sum over several GPUs, the residual stream it is added to, and the norm that reads that next, in one launch on
// each of them (a one-shot all-reduce):
//
//   sum = update of rank 0 + update of rank 1 + ...;  hidden += scale * norm_of_update(sum);  normed = norm(hidden)
//
// Every rank stores its rows into the memory of all others and looks into its own until theirs are there. A word
// that has not come has all its bits set, as in published.cuh, so that the data say by themselves that they have
// come: one way over the link, no flag, no fence and no barrier. Sums are made in float32 in the order of the
// ranks, the same bits on all of them.
//
// A place is read once and marked as empty at once. There are two for each row, taken in turns, and each thread
// block counts its own: who writes to a place for the second time has in between got data from its owner, of a
// launch that followed the one in which the owner emptied it. So any number of rows may follow any other, as long
// as all ranks launch the same.
//
// NOTE: in real life a launch is one rank's, and the grid is one high. Tests have all ranks in one launch.

#include "common/dependent_launch.cuh"
#include "common/published.cuh"
#include "common/row_norm.cuh"

#ifndef NORM
#define NORM 1  // a NormKind: of the sum with the stream
#endif
#ifndef UPDATE_NORM
#define UPDATE_NORM 0  // a NormKind: of what is added
#endif

constexpr int LOOKS_BETWEEN = 1024;  // some hundred times what a sum waits for; the word is the host's

// A word of this kind would never be seen to come: another NaN does as well.
__device__ __forceinline__ uint32 sendable(uint32 word) { return word == NOT_THERE ? 0x7fff7fffu : word; }

__device__ __forceinline__ void store_there(void* address, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

__device__ __forceinline__ uint4 look_there(const void* address) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

// A piece once it has come from another rank; its place is empty then. Zeros once a rank is known to be gone, whose
// host does not look at the results: no launch waits for it then.
__device__ __forceinline__ Row take(void* place, const int* given_up) {
  uint4 v;
#pragma unroll 1
  for (int looks = 1;; looks++) {
    v = look_there(place);
    if (max(max(v.x, v.y), max(v.z, v.w)) != NOT_THERE) break;
    if (looks % LOOKS_BETWEEN == 0 && *static_cast<const volatile int*>(given_up) != 0) return Row{};
    if (looks == MAX_LOOKS) __trap();  // nobody knows of it: an error, instead of a GPU that never answers
  }
  store_there(place, make_uint4(NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE));
  return as_row(v);
}

// Grid: (num_rows, ranks of this launch: 1); a multiple of 32 threads, each with one piece of 16 bytes or none.
extern "C" __global__ void reduce_add_norm(
    Element* normed,                            // [ranks, num_rows, width]; the sum where there is no `hidden`
    Element* hidden,                            // [ranks, num_rows, width], or null
    const Element* update,                      // [ranks, num_rows, width]
    const Element* __restrict__ weight,         // [width], with NORM
    const Element* __restrict__ bias,           // [width], or null
    const Element* __restrict__ update_weight,  // [width], with UPDATE_NORM
    const Element* __restrict__ update_bias,    // [width], or null
    const int64* __restrict__ mailboxes,  // [RANKS]: [max_rows, 2, RANKS, most_bytes / 16] uint4, of each rank
    int* turns,                           // [ranks, max_rows]: of two places, which one is next
    const int* given_up,                  // of the host: not 0 once a rank is gone
    int first_rank, int max_rows, int most_bytes, int width, float epsilon, float update_epsilon,
    float update_scale) {
  let_next_kernel_start();
  const int at = threadIdx.x * ROW_ELEMENTS, rank = first_rank + blockIdx.y;
  const bool has_piece = at < width;
  const int64 place = (blockIdx.y * static_cast<int64>(gridDim.x) + blockIdx.x) * width + at;
  NormNumbers of_sum = {}, of_update = {};
  if (NORM && has_piece) of_sum.load(weight, bias, at);
  if (UPDATE_NORM && has_piece) of_update.load(update_weight, update_bias, at);
  wait_for_previous_kernel();

  int* const own_turn = turns + blockIdx.y * max_rows + blockIdx.x;
  const int turn = *own_turn;
  __syncthreads();  // all have read it
  if (threadIdx.x == 0) *own_turn = 1 - turn;
  const auto mailbox = [&](int owner, int sender) {
    const int64 slot = (static_cast<int64>(blockIdx.x) * 2 + turn) * RANKS + sender;
    return reinterpret_cast<char*>(mailboxes[owner]) + slot * most_bytes + threadIdx.x * 16;
  };
  Row row = {}, added = {};
  if (has_piece) {
    added = load_fresh_row(update + place);
    uint4 words = as_bytes(added);
    words = make_uint4(sendable(words.x), sendable(words.y), sendable(words.z), sendable(words.w));
#pragma unroll
    for (int i = 1; i < RANKS; i++) {
      const int other = (rank + i) % RANKS;  // not all to the same one at once
      store_there(mailbox(other, rank), words);
    }
    if (hidden != nullptr) row = load_fresh_row(hidden + place);
    float sum[ROW_ELEMENTS] = {};
#pragma unroll
    for (int sender = 0; sender < RANKS; sender++) {
      const Row part = sender == rank ? added : take(mailbox(rank, sender), given_up);
#pragma unroll
      for (int i = 0; i < ROW_ELEMENTS; i++) sum[i] += to_float(part.elements[i]);
    }
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) added.elements[i] = from_float<Element>(sum[i]);
  }
#if UPDATE_NORM
  added = norm_row<UPDATE_NORM>(added, of_update, has_piece, width, update_epsilon);
#endif
  if (hidden == nullptr) {
    if (has_piece) store_16(normed + place, as_bytes(added));
    return;
  }
  if (has_piece) {
#pragma unroll
    for (int i = 0; i < ROW_ELEMENTS; i++) {
      // Rounded in between, as the models' own code does.
      const float scaled = to_float(from_float<Element>(to_float(added.elements[i]) * update_scale));
      row.elements[i] = from_float<Element>(to_float(row.elements[i]) + scaled);
    }
    store_16(hidden + place, as_bytes(row));
  }
#if NORM
#if UPDATE_NORM
  __syncthreads();  // before the sums of the first norm are written over
#endif
  const Row results = norm_row<NORM>(row, of_sum, has_piece, width, epsilon);
  if (has_piece) store_16(normed + place, as_bytes(results));
#endif
}
