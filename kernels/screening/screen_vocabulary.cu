// What the logits of up to 64 tokens are, roughly: products of the vocabulary's copy in 8-bit integers, which has
// half of its bytes, and of inputs in two digits of 8 bits. Exact in integers; how far a logit can be from that,
// bounds.cuh says, and which rows may be the best choose_screened.cu.
//
// A unit is 64 rows of the vocabulary. Units stream through a ring in shared memory, up to four at a time with the
// same 128 inner elements of all tokens, which come from the L2 cache; one thread block on every multiprocessor,
// each with equally many units. Two warpgroups multiply a unit each in turns, a warp of its own fetches: weights of
// the whole ring before the kernel before has ended, and tokens when it has (programmatic dependent launch).

#include "common/argmax.cuh"
#include "common/bulk_copy.cuh"
#include "common/dependent_launch.cuh"
#include "screening/wgmma_integers.cuh"
#include "screening/bounds.cuh"

#ifndef TOKENS
#define TOKENS 8  // columns of tokens: 8, 16, 32 or 64
#endif
#ifndef STAGES
#define STAGES 4
#endif

constexpr int COLUMNS = 2 * TOKENS;  // digits
constexpr int GROUPS = 2, GROUP_THREADS = 4 * WARP_SIZE, NUM_MULTIPLIERS = GROUPS * GROUP_THREADS;
constexpr int TURNS = 2, TILE_UNITS = GROUPS * TURNS;
constexpr int UNIT_BYTES = UNIT_ROWS * CHUNK, DIGIT_BYTES = COLUMNS * CHUNK;

struct Shared {
  struct {
    unsigned char units[TILE_UNITS][UNIT_BYTES], digits[DIGIT_BYTES];
  } stages[STAGES];
  uint64 filled[STAGES], emptied[STAGES];
  float2 reaches[TOKENS];
  uint32 highest[GROUPS][TOKENS];  // as ordered bits, of the unit that a warpgroup finishes
};

__device__ __forceinline__ uint32 address_of(const uint64& barrier) {
  return static_cast<uint32>(__cvta_generic_to_shared(&barrier));
}

// Units of the thread block, four at a time, chunk by chunk.
struct Tiles {
  int first, end, num_chunks, chunk = 0;

  __device__ __forceinline__ Tiles(int num_units, int chunks)
      : first(first_of(num_units, blockIdx.x)), end(first_of(num_units, blockIdx.x + 1)), num_chunks(chunks) {}

  static __device__ __forceinline__ int first_of(int num_units, int thread_block) {
    return static_cast<int>(static_cast<int64>(num_units) * thread_block / gridDim.x);
  }

  __device__ __forceinline__ int count() const { return min(TILE_UNITS, end - first); }

  __device__ __forceinline__ void advance() {
    if (++chunk < num_chunks) return;
    chunk = 0;
    first += TILE_UNITS;
  }
};

// By one thread.
__device__ __forceinline__ void fetch(Shared& shared, const Tiles& all, const unsigned char* vocabulary,
                                      const unsigned char* digits) {
  const auto fetch_units = [&](const Tiles& tile, int stage) {
    const uint32 barrier = address_of(shared.filled[stage]);
    const int count = tile.count();
    expect_bytes(barrier, count * UNIT_BYTES + DIGIT_BYTES);
    for (int i = 0; i < count; i++) {
      const int64 unit = tile.first + i;
      copy_bulk(shared.stages[stage].units[i], vocabulary + (unit * tile.num_chunks + tile.chunk) * UNIT_BYTES,
                UNIT_BYTES, barrier);
    }
  };
  const auto fetch_digits = [&](const Tiles& tile, int stage) {
    copy_bulk(shared.stages[stage].digits, digits + static_cast<int64>(tile.chunk) * DIGIT_BYTES, DIGIT_BYTES,
              address_of(shared.filled[stage]), keep_in_cache());
  };
  Tiles tile = all;
  for (int stage = 0; stage < STAGES && tile.first < tile.end; stage++, tile.advance()) fetch_units(tile, stage);
  wait_for_previous_kernel();
  tile = all;
  for (int stage = 0; stage < STAGES && tile.first < tile.end; stage++, tile.advance()) fetch_digits(tile, stage);
  Ring<STAGES> ring;
#pragma unroll 1
  for (; tile.first < tile.end; tile.advance()) {
    wait(address_of(shared.emptied[ring.stage]), ring.parity);
    fetch_units(tile, ring.stage);
    fetch_digits(tile, ring.stage);
    ring.advance();
  }
}

// The largest over the eight lanes that have the same columns, of each of COUNT numbers: lane g of them gets those
// with j % 8 == g, in numbers[j / 8].
template <int COUNT>
__device__ __forceinline__ void share_out_largest(float (&numbers)[COUNT], int g) {
  if constexpr (COUNT < 8) {
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
      const float largest = warp_max<16, 4>(numbers[j]);
      numbers[0] = j == 0 || g == j ? largest : numbers[0];
    }
  } else {
#pragma unroll
    for (int first = 0; first < COUNT / 8; first++) {
      float left[8];
#pragma unroll
      for (int j = 0; j < 8; j++) left[j] = numbers[8 * first + j];
      // Each lane keeps the half of the numbers that have a bit as it has, and gets its neighbour's of those.
#pragma unroll
      for (int bit = 4; bit > 0; bit /= 2) {
        const bool upper = g & bit;
#pragma unroll
        for (int j = 0; j < bit; j++) {
          const float sent = upper ? left[j] : left[j + bit], kept = upper ? left[j + bit] : left[j];
          left[j] = fmaxf(kept, __shfl_xor_sync(FULL_WARP, sent, 4 * bit));
        }
      }
      numbers[first] = left[0];
    }
  }
}

// A warp's 16 rows of a unit for all tokens: estimates to memory, in units of a token's scale, and how high the
// highest of them can be.
__device__ __forceinline__ void finish_rows(Shared& shared, const int (&sums)[COLUMNS / 2],
                                            const RowBounds (&rows)[2], __nv_bfloat16* estimates, int group) {
  constexpr int COUNT = TOKENS / 4;
  const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE % 4, g = lane / 4, q = lane % 4;
  float highest[COUNT];
#pragma unroll
  for (int j = 0; j < COUNT; j++) {
    const int token = 4 * j + q;
    const float2 reach = shared.reaches[token];
    float found[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float first = sums[4 * j + 2 * half], second = sums[4 * j + 2 * half + 1];
      found[half] = fmaf(first, DIGIT_STEP, second) * rows[half].scale;
    }
    highest[j] = fmaxf(highest_logit(found[0], rows[0], reach), highest_logit(found[1], rows[1], reach));
    *reinterpret_cast<uint32*>(estimates + token * UNIT_ROWS + 16 * warp + 2 * g) =
        pack_pair<__nv_bfloat16>(found[0], found[1]);
  }
  share_out_largest(highest, g);
#pragma unroll
  for (int i = 0; i < ceil_div(COUNT, 8); i++) {
    const int j = 8 * i + g;
    if (j < COUNT) atomicMax(&shared.highest[group][4 * j + q], ordered_bits(highest[i]));
  }
}

// Grid: (thread blocks), best one a multiprocessor; 288 threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_MULTIPLIERS + WARP_SIZE, 1)
    screen_vocabulary(__nv_bfloat16* __restrict__ estimates,         // [num_units, TOKENS, UNIT_ROWS]
                      float* __restrict__ highest,                   // [TOKENS, num_units]
                      const unsigned char* __restrict__ vocabulary,  // [num_units, num_chunks, UNIT_ROWS, CHUNK]
                      const RowBounds* __restrict__ rows,            // [num_units, UNIT_ROWS]
                      const unsigned char* digits,                   // [num_chunks, COLUMNS, CHUNK]
                      const InputBounds* inputs,                     // [TOKENS]
                      int num_units, int num_chunks) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      init_barrier(address_of(shared.filled[i]), 1);
      init_barrier(address_of(shared.emptied[i]), NUM_MULTIPLIERS / WARP_SIZE);
    }
    publish_barriers();
  }
  if (threadIdx.x < GROUPS * TOKENS) shared.highest[threadIdx.x / TOKENS][threadIdx.x % TOKENS] = 0;
  __syncthreads();
  let_next_kernel_start();
  const int group = threadIdx.x / GROUP_THREADS;
  Tiles tile(num_units, num_chunks);
  if (group == GROUPS) {
    if (is_elected()) fetch(shared, tile, vocabulary, digits);
    return;
  }
  wait_for_previous_kernel();
  const int thread = threadIdx.x % GROUP_THREADS, lane = threadIdx.x % WARP_SIZE, warp = thread / WARP_SIZE;
  if (threadIdx.x < TOKENS) {
    const float4 input = __ldcg(reinterpret_cast<const float4*>(inputs + threadIdx.x));
    shared.reaches[threadIdx.x] = InputBounds{input.x, input.y, input.z, input.w}.reach();
  }
  sync_named(1, NUM_MULTIPLIERS);
  Ring<STAGES> ring;
#pragma unroll 1
  for (; tile.first < tile.end; tile.first += TILE_UNITS) {
    const int count = tile.count();
    RowBounds bounds[TURNS][2];
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      const int unit = min(tile.first + group + turn * GROUPS, num_units - 1);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = unit * UNIT_ROWS + 16 * warp + lane / 4 + 8 * half;
        const float4 found = __ldg(reinterpret_cast<const float4*>(rows + row));
        bounds[turn][half] = {found.x, found.y, found.z, found.w};
      }
    }
    int sums[TURNS][COLUMNS / 2];
    int before = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks; chunk++) {
      wait(address_of(shared.filled[ring.stage]), ring.parity);
      const auto& stage = shared.stages[ring.stage];
      const uint64 columns = matrix_descriptor(shared_address(stage.digits), 16, 8 * CHUNK, CHUNK);
      fence_products();
#pragma unroll
      for (int turn = 0; turn < TURNS; turn++) {
        if (group + turn * GROUPS >= count) continue;
        const uint64 unit =
            matrix_descriptor(shared_address(stage.units[group + turn * GROUPS]), 16, 8 * CHUNK, CHUNK);
#pragma unroll
        for (int at = 0; at < CHUNK; at += 32) {
          IntegerProduct<COLUMNS>::add(sums[turn], moved(unit, at), moved(columns, at), chunk > 0 || at > 0);
        }
      }
      commit_products();
      wait_products<1>();
      if (chunk > 0 && lane == 0) arrive(address_of(shared.emptied[before]));
      before = ring.stage;
      ring.advance();
    }
    wait_products<0>();
    if (lane == 0) arrive(address_of(shared.emptied[before]));
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
      settle(sums[turn]);
      const int unit = tile.first + group + turn * GROUPS;
      if (unit >= tile.end) continue;
      finish_rows(shared, sums[turn], bounds[turn], estimates + static_cast<int64>(unit) * TOKENS * UNIT_ROWS,
                  group);
      sync_named(2 + group, GROUP_THREADS);
      if (thread < TOKENS) {
        highest[static_cast<int64>(thread) * num_units + unit] =
            argmax_value(static_cast<uint64>(shared.highest[group][thread]) << 32);
        shared.highest[group][thread] = 0;
      }
      sync_named(2 + group, GROUP_THREADS);
    }
  }
}
