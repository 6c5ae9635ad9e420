// A step of beam search: the most likely tokens of every beam, which continuations of a search's beams go on, and
// in whose place.
//
//   sum[continuation] = sum[beam] + logprob[token], in float64, as the host has it
//
// Tokens are found by the thread blocks of their rows (likely_tokens.cuh). The one that arrives last chooses, a
// warp a search, a lane a beam, so that no launch has to begin for that. What a search is like it has asked for
// before it looked for tokens.
//
// A beam's tokens are in order, so the best continuation of all is the best of 32 heads: it is taken `num_choices`
// times, and its lane goes on to its next token. Of equals the better beam's is first. NOTE: a turn is a reduction
// of the upper half of the sums, ordered as whole numbers, and of the lower half where it has not decided; all else
// waits until all are taken. Those are ranked, which the host reads; the best `width` that do not end are the next
// beams. The first one of a beam stays in its place, the others take the places of beams that have none. Nothing
// but the search's own numbers is changed: blocks and tokens are `move_beams`'.

#include "sampling/likely_tokens.cuh"

constexpr int MAX_WIDTH = WARP_SIZE;  // as pagedchat/ops/sampling/kernels.py says
constexpr int MAX_CHOICES = 64;
constexpr int HEAD_WORDS = 4 + MAX_CHOICES;  // width, num_choices, num_stops, padding, tokens that end a beam
static_assert(MAX_CHOICES == 2 * WARP_SIZE,
              "a lane looks at two tokens that end a beam, and at two that do or not");

struct alignas(16) Ranked {
  double sum;
  int beam, token_id;
};

union Shared {
  LikelyShared likely;
  Ranked found[NUM_WARPS][MAX_CHOICES];  // by each warp, in order
};

// What is known of a search before its tokens are. A lane has a beam of its own.
struct Search {
  int width, num_choices, num_stops;
  int first_stop, second_stop;  // two of the tokens that end a beam
  int row;                      // of the lane's beam,
  double sum;                   // and of its log-probabilities
};

// NOTE: asked for where this stands. Of a load that only one thread block needs in the end the compiler thinks
// otherwise.
__device__ __forceinline__ int load_here(const int* address) {
  int value;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ Search load_search(const int* heads, const int* rows, const double* sums, int search) {
  const int lane = threadIdx.x % WARP_SIZE, *head = heads + search * HEAD_WORDS;
  Search found;
  found.width = load_here(head), found.num_choices = load_here(head + 1), found.num_stops = load_here(head + 2);
  found.first_stop = load_here(head + 4 + lane);
  found.second_stop = load_here(head + 4 + WARP_SIZE + lane);
  found.row = load_here(rows + search * MAX_WIDTH + lane);
  asm volatile("ld.global.f64 %0, [%1];" : "=d"(found.sum) : "l"(sums + search * MAX_WIDTH + lane) : "memory");
  return found;
}

// Whether this thread block is the last one to arrive: what the others have written is there then.
__device__ __forceinline__ bool arrives_last(uint32* arrivals, uint32 num_rows) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32 before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(arrivals), "r"(num_rows - 1)
                 : "memory");
    is_last = before == num_rows - 1;
  }
  __syncthreads();
  return is_last;
}

__device__ __forceinline__ uint32 max_over_warp(uint32 x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(FULL_WARP, x);
#else
#pragma unroll
  for (int step = WARP_SIZE / 2; step > 0; step /= 2) x = max(x, __shfl_xor_sync(FULL_WARP, x, step));
  return x;
#endif
}

// Larger for larger sums, above 0 for every sum.
__device__ __forceinline__ uint64 key_of(double sum) {
  const uint64 bits = __double_as_longlong(sum + 0.0);  // of both zeros the positive one
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// The lane with the largest key, the first of equals.
__device__ __forceinline__ int best_lane(uint64 key) {
  const uint32 upper = static_cast<uint32>(key >> 32), lower = static_cast<uint32>(key);
  const bool is_best = upper == max_over_warp(upper);
  uint32 lanes = __ballot_sync(FULL_WARP, is_best);
  if (lanes & (lanes - 1)) {
    const uint32 most = max_over_warp(is_best ? lower : 0);
    lanes = __ballot_sync(FULL_WARP, is_best && lower == most);
  }
  return __ffs(lanes) - 1;
}

// The place of the `count`-th bit that is set, from 0 on.
__device__ __forceinline__ int nth_bit(uint32 bits, int count) {
#pragma unroll 1
  for (; count > 0; count--) bits &= bits - 1;
  return __ffs(bits) - 1;
}

// The best continuations of all beams, in order. token_ids, logprobs: [num_rows, stride], of each row the most
// likely ones.
__device__ __forceinline__ void rank_continuations(Ranked (&found)[MAX_CHOICES], const Search& search,
                                                   const int* token_ids, const float* logprobs, int stride) {
  const int lane = threadIdx.x % WARP_SIZE, num_choices = search.num_choices;
  const int64 first = lane < search.width ? static_cast<int64>(search.row) * stride : 0;
  const int* tokens = token_ids + first;
  const float* chances = logprobs + first;
  int left = lane < search.width ? num_choices : 0;  // of this lane's
  int token = 0, token_after = 0;
  float chance = 0.0f, chance_after = 0.0f;
  if (left > 0) token = tokens[0], chance = chances[0];
  if (left > 1) token_after = tokens[1], chance_after = chances[1];
  double sum = search.sum + static_cast<double>(chance);
  uint64 key = left > 0 ? key_of(sum) : 0;
#pragma unroll 1
  for (int i = 0; i < num_choices; i++) {
    const double sum_after = search.sum + static_cast<double>(chance_after);
    const uint64 key_after = left > 1 ? key_of(sum_after) : 0;
    if (lane == best_lane(key)) {
      found[i] = {sum, lane, token};
      sum = sum_after, key = key_after, token = token_after;
      tokens++, chances++, left--;
      if (left > 1) token_after = tokens[1], chance_after = chances[1];
    }
  }
  __syncwarp();
}

// Of those that do not end the best `width`, in order, at the beginning of `found`; how many there are. All are
// written to `ranked`.
__device__ __forceinline__ int keep_going(Ranked (&found)[MAX_CHOICES], const Search& search, Ranked* ranked) {
  const int lane = threadIdx.x % WARP_SIZE;
  const bool is_first = lane < search.num_choices, is_second = lane + WARP_SIZE < search.num_choices;
  const Ranked first = is_first ? found[lane] : Ranked{}, second = is_second ? found[lane + WARP_SIZE] : Ranked{};
  bool first_ends = !is_first, second_ends = !is_second;
#pragma unroll 1
  for (int i = 0; i < search.num_stops; i++) {
    const int stop = __shfl_sync(FULL_WARP, i < WARP_SIZE ? search.first_stop : search.second_stop, i % WARP_SIZE);
    first_ends |= first.token_id == stop, second_ends |= second.token_id == stop;
  }
  const uint32 of_first = __ballot_sync(FULL_WARP, !first_ends), before = (1u << lane) - 1;
  const uint32 of_second = __ballot_sync(FULL_WARP, !second_ends);  // all have read, too
  if (!first_ends) found[__popc(of_first & before)] = first;
  if (!second_ends) found[__popc(of_first) + __popc(of_second & before)] = second;
  if (is_first) ranked[lane] = first;
  if (is_second) ranked[lane + WARP_SIZE] = second;
  __syncwarp();
  return min(__popc(of_first) + __popc(of_second), search.width);
}

// Where the next beams are: the first one of each beam in its row, the others in the rows that are free.
__device__ __forceinline__ void place_beams(const Ranked (&found)[MAX_CHOICES], const Search& search, int num_left,
                                            int* sources, int* next_tokens, int* rows, double* sums) {
  const int lane = threadIdx.x % WARP_SIZE;
  const bool goes_on = lane < num_left;
  const Ranked mine = goes_on ? found[lane] : Ranked{0.0, lane, 0};
  uint32 free = 0, siblings = 0;
#pragma unroll 1
  for (int beam = 0; beam < search.width; beam++) {
    const uint32 of_beam = __ballot_sync(FULL_WARP, goes_on && mine.beam == beam);
    if (of_beam == 0) free |= 1u << beam;
    if (mine.beam == beam) siblings = of_beam;
  }
  const uint32 before = (1u << lane) - 1;
  const bool forks = goes_on && (siblings & before) != 0;
  const int fork = __popc(__ballot_sync(FULL_WARP, forks) & before);
  const int place = forks ? nth_bit(free, fork) : mine.beam;
  const int source_row = __shfl_sync(FULL_WARP, search.row, mine.beam);
  const int own_row = __shfl_sync(FULL_WARP, search.row, place);
  if (!goes_on) return;
  sources[own_row] = source_row;
  next_tokens[own_row] = mine.token_id;
  rows[lane] = own_row;
  sums[lane] = mine.sum;
}

// Grid: (num_rows * CLUSTER), NUM_THREADS threads
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(NUM_THREADS)
    choose_beams(Ranked* __restrict__ ranked,  // [history_len, num_searches, MAX_CHOICES], strided, the best first
                 int* __restrict__ sources,    // [num_rows]: which row's beam goes on in this row
                 int* __restrict__ next_tokens,       // [num_rows]: with which token
                 int* rows,                           // [num_searches, MAX_WIDTH]: of the beams, the best first
                 double* sums,                        // [num_searches, MAX_WIDTH]: theirs
                 uint32* arrivals,                    // [1], zero before and after
                 int* token_ids,                      // [num_rows, width]: the most likely ones of each row
                 float* logprobs,                     // [num_rows, width]: theirs
                 const int* heads,                    // [num_searches, HEAD_WORDS]
                 const Element* __restrict__ logits,  // [num_rows, vocab_size], strided
                 const int* __restrict__ counts,      // [num_rows]: most likely ones wanted; below 0: no beam
                 const int* step,  // [1]: one more than that of the step, which says where in the history
                 int vocab_size, int64 row_stride, int width, int num_searches, int history_len,
                 int history_stride) {
  __shared__ Shared shared;
  __shared__ RowShared of_row;
  const int row = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER, warp = threadIdx.x / WARP_SIZE;
  int next = warp;
  Search search{};
  if (rank == 0 && next < num_searches) search = load_search(heads, rows, sums, next);
  const int number = rank == 0 ? load_here(step) - 1 : 0;
  const LikelyOutputs to{token_ids, logprobs, nullptr, width};
  find_likely_tokens<false>(shared.likely, of_row, to, logits, nullptr, counts, row, rank, vocab_size, row_stride);
  if (rank > 0 || !arrives_last(arrivals, gridDim.x / CLUSTER)) return;

  ranked += number % history_len * history_stride;
  Ranked(&found)[MAX_CHOICES] = shared.found[warp];
#pragma unroll 1
  while (next < num_searches) {
    rank_continuations(found, search, token_ids, logprobs, width);
    const int num_left = keep_going(found, search, ranked + next * MAX_CHOICES);
    place_beams(found, search, num_left, sources, next_tokens, rows + next * MAX_WIDTH, sums + next * MAX_WIDTH);
    __syncwarp();
    next += NUM_WARPS;
    if (next < num_searches) search = load_search(heads, rows, sums, next);
  }
}
