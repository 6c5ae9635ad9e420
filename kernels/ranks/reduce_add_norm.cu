// A sum over several GPUs, the residual stream it is added to, and the norm that reads that next, in one launch on
// each of them:
//
//   sum = update of rank 0 + update of rank 1 + ...;  hidden += scale * norm_of_update(sum);  normed = norm(hidden)
//
// Every rank stores pieces of its rows into the memory of others and looks into its own until theirs are there. A
// word that has not come has all its bits set, as in published.cuh, so that the data say by themselves that they
// have come: one way over the link, no flag, no fence and no barrier. Sums are made in float32 in the order of the
// ranks and rounded once, the same bits on all of them.
//
// In one hop everybody gets the pieces of all others and sums them. In two hops a piece has one rank that sums it
// and sends the sum to all others: it is on its way twice as long, and of N ranks each sends 2 / N times as many
// bytes. Warp w of row r is summed by rank (r + w) % N, so that all have as much to do, whatever the number of
// rows.
//
// A place is read once and marked as empty at once. There are two for each row, taken in turns, and each thread
// block counts its own. Who writes to a place for the second time has in between ended a launch with that row. Its
// sum has a part of every rank, be it in one hop or in two, so of the place's owner too, of a launch that followed
// the one in which the owner emptied the place. So any number of rows, of any width, may follow any other, in one
// hop or two, as long as all ranks launch the same.
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
#ifndef HOPS
#define HOPS 1  // or 2: see above
#endif

// Pieces that are looked for at once. A thread block may have 1,024 threads, and so 64 registers for each.
constexpr int TOGETHER = RANKS < 4 ? RANKS : 4;
constexpr int LOOKS_BETWEEN = 1024;  // some hundred times what a sum waits for; the word is the host's

// A word of this kind would never be seen to come: another NaN does as well.
__device__ __forceinline__ uint32 sendable(uint32 word) { return word == NOT_THERE ? 0x7fff7fffu : word; }
__device__ __forceinline__ uint4 sendable(uint4 v) {
  return make_uint4(sendable(v.x), sendable(v.y), sendable(v.z), sendable(v.w));
}

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

__device__ __forceinline__ bool is_there(uint4 v) { return max(max(v.x, v.y), max(v.z, v.w)) != NOT_THERE; }

// The pieces at `first`, `first + stride` and so on once all have come, but for number `own`, which nobody sends.
// They are looked for at the same time, and their places are empty then. Zeros once a rank is known to be gone,
// whose host does not look at the results: no launch waits for it then.
template <int COUNT>
__device__ __forceinline__ void take(uint4 (&pieces)[COUNT], char* first, int stride, int own,
                                     const int* given_up) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    if (i != own) pieces[i] = look_there(first + i * stride);
  }
#pragma unroll 1
  for (int looks = 1;; looks++) {
    bool all_there = true;
#pragma unroll
    for (int i = 0; i < COUNT; i++) all_there &= is_there(pieces[i]);
    if (all_there) break;
    if (looks == MAX_LOOKS) __trap();  // nobody knows of it: an error, instead of a GPU that never answers
    const bool is_over = looks % LOOKS_BETWEEN == 0 && *static_cast<const volatile int*>(given_up) != 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      if (!is_there(pieces[i])) pieces[i] = is_over ? make_uint4(0, 0, 0, 0) : look_there(first + i * stride);
    }
  }
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    if (i != own) store_there(first + i * stride, make_uint4(NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE));
  }
}

__device__ __forceinline__ void add_to(float (&sum)[ROW_ELEMENTS], const Row& piece) {
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) sum[i] += to_float(piece.elements[i]);
}

__device__ __forceinline__ Row rounded(const float (&sum)[ROW_ELEMENTS]) {
  Row row;
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) row.elements[i] = from_float<Element>(sum[i]);
  return row;
}

// Grid: (num_rows, ranks of this launch: 1); a multiple of 32 threads, each with one piece of 16 bytes or none.
extern "C" __global__ void __launch_bounds__(MAX_WARPS* WARP_SIZE) reduce_add_norm(
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
  __shared__ int64 boxes[RANKS];  // what never changes is read before the wait
  if (threadIdx.x < RANKS) boxes[threadIdx.x] = mailboxes[threadIdx.x];
  __syncthreads();
  wait_for_previous_kernel();

  int* const own_turn = turns + blockIdx.y * max_rows + blockIdx.x;
  const int turn = __ldcg(own_turn);
  Row row = {}, added = {};
  if (has_piece) {
    added = load_fresh_row(update + place);
    if (hidden != nullptr) row = load_fresh_row(hidden + place);
    const auto mailbox = [&](int owner, int sender) {
      const int64 slot = (blockIdx.x * 2 + turn) * RANKS + sender;
      return reinterpret_cast<char*>(boxes[owner]) + slot * most_bytes + threadIdx.x * 16;
    };
    const auto send_to_all = [&](uint4 piece) {
#pragma unroll
      for (int i = 1; i < RANKS; i++) {
        const int other = (rank + i) % RANKS;  // not all to the same one at once
        store_there(mailbox(other, rank), piece);
      }
    };
    const auto sum_up = [&](uint4 own) {
      float sum[ROW_ELEMENTS] = {};
#pragma unroll
      for (int sender = 0; sender < RANKS; sender += TOGETHER) {
        uint4 pieces[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) pieces[i] = own;
        take(pieces, mailbox(rank, sender), most_bytes, rank - sender, given_up);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) add_to(sum, as_row(pieces[i]));
      }
      return sendable(as_bytes(rounded(sum)));
    };
    const uint4 own = sendable(as_bytes(added));
    const int summer = (blockIdx.x + threadIdx.x / WARP_SIZE) % RANKS;  // in two hops
    uint4 sum[1];
    if (HOPS == 1) {
      send_to_all(own);
      sum[0] = sum_up(own);
    } else if (rank == summer) {
      sum[0] = sum_up(own);
      send_to_all(sum[0]);
    } else {
      store_there(mailbox(summer, rank), own);
      take(sum, mailbox(rank, summer), 0, -1, given_up);
    }
    added = as_row(sum[0]);
  }
  __syncthreads();  // all have read whose turn it is
  if (threadIdx.x == 0) *own_turn = 1 - turn;
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
