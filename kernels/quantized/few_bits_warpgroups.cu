// few_bits_linear.cu by Hopper's products of warpgroups, weights as the operand that comes from registers.
//
// The input's rows are the operand in shared memory, which has to have the order of inner elements in which a lane
// gets its weights: it is in registers on its way there, and words change places between the four pieces that a
// thread has. So it is read from the L2 cache a chunk ahead, into a ring of its own. A step's products run while
// the next step's weights are widened, also from one chunk to the next.

#include "common/wgmma.cuh"
#include "quantized/few_bits_tile.cuh"

static_assert(STAGES >= 2, "copies run ahead");

constexpr int TILE_ROW = 128;  // bytes: 64 elements of an input row
constexpr int INPUT_TILES = CHUNK / 64, PART_TILES = INPUT_TILES / WARPS_OF_CHUNK;
constexpr int INPUT_STAGES = 2;                  // that is multiplied, and that is written
constexpr int UNITS = 2 * TOKENS * INPUT_TILES;  // four pieces each
constexpr int OWN_UNITS = ceil_div(UNITS, NUM_THREADS);

struct InputStage {
  alignas(1024) unsigned char tiles[INPUT_TILES][TOKENS * TILE_ROW];
};

struct Shared {
  InputStage inputs[INPUT_STAGES];
  WeightStage stages[STAGES];
  Meeting meeting;
  int number;
};

// The part of a chunk of the input that a thread brings: of an input row, the four pieces that lanes q = 0 to 3
// multiply in one step, which become four pieces with a word for each lane. In place of rows that do not exist it
// brings the last one again, as nobody looks at what becomes of it.
struct InputUnits {
  const Element* from[OWN_UNITS];
  int inner[OWN_UNITS];  // of the first piece, in a chunk
  int in_features;
  uint4 pieces[OWN_UNITS][4];

  // Unit i of the thread: its input row, its tile, and which half of it.
  struct Place {
    int half, token, tile;
    __device__ __forceinline__ explicit Place(int i) {
      const int unit = threadIdx.x + i * NUM_THREADS;
      half = unit % 2, token = unit / 2 % TOKENS, tile = unit / (2 * TOKENS);
    }
    __device__ __forceinline__ bool exists() const { return UNITS % NUM_THREADS == 0 || tile < INPUT_TILES; }
  };

  __device__ __forceinline__ explicit InputUnits(const Task& of) : in_features(of.in_features) {
#pragma unroll
    for (int i = 0; i < OWN_UNITS; i++) {
      const Place place(i);
      const int part = min(place.tile / PART_TILES, WARPS_OF_CHUNK - 1);
      inner[i] = settled(part * (CHUNK / WARPS_OF_CHUNK) + (place.tile % PART_TILES * 2 + place.half) * PIECE);
      from[i] =
          settled(of.input + static_cast<int64>(min(place.token, of.num_tokens - 1)) * in_features + inner[i]);
    }
  }

  __device__ __forceinline__ void load(int chunk) {
    if (chunk * CHUNK + CHUNK <= in_features) {
      load_below(chunk, CHUNK);
    } else {
      load_below(chunk, in_features - chunk * CHUNK);
    }
  }

  // Elements of the chunk from `end` on are zeros.
  __device__ __forceinline__ void load_below(int chunk, int end) {
#pragma unroll
    for (int i = 0; i < OWN_UNITS; i++) {
      const Element* first = from[i] + chunk * CHUNK;
#pragma unroll
      for (int q = 0; q < 4; q++) {
        const bool valid = end >= CHUNK || inner[i] + q * PIECE_DIGITS < end;
        pieces[i][q] = valid ? load_in_order(first + q * PIECE_DIGITS) : make_uint4(0, 0, 0, 0);
      }
    }
  }

  __device__ __forceinline__ void store(InputStage& stage) const {
#pragma unroll
    for (int i = 0; i < OWN_UNITS; i++) {
      const Place place(i);
      if (!place.exists()) break;
      uint4 of_lane[4];
#pragma unroll
      for (int q = 0; q < 4; q++) of_lane[q] = in_order_of_weights(pieces[i][q]);
      unsigned char* tile = stage.tiles[place.tile];
      const int at = place.token * TILE_ROW + place.half * 64;
      store_16(tile + swizzled(at, TILE_ROW), make_uint4(of_lane[0].x, of_lane[1].x, of_lane[2].x, of_lane[3].x));
      store_16(tile + swizzled(at + 16, TILE_ROW),
               make_uint4(of_lane[0].y, of_lane[1].y, of_lane[2].y, of_lane[3].y));
      store_16(tile + swizzled(at + 32, TILE_ROW),
               make_uint4(of_lane[0].z, of_lane[1].z, of_lane[2].z, of_lane[3].z));
      store_16(tile + swizzled(at + 48, TILE_ROW),
               make_uint4(of_lane[0].w, of_lane[1].w, of_lane[2].w, of_lane[3].w));
    }
    show_to_products();
  }
};

__device__ __forceinline__ uint64 input_descriptor(const InputStage& stage, int tile) {
  const uint32 address = static_cast<uint32>(__cvta_generic_to_shared(stage.tiles[tile]));
  return matrix_descriptor(address, 16, 8 * TILE_ROW, TILE_ROW);
}

// The products of a chunk are added; those of its last two steps may still be under way.
__device__ __forceinline__ void multiply(WarpSums& warp, const InputStage& input, const Weights& weights,
                                         const PairScales& by, const Lane& lane) {
  uint32 a[2][2][ROW_TILES][4];  // of two steps
  const uint64 first = input_descriptor(input, lane.part * PART_TILES);
#pragma unroll
  for (int step = 0; step < STEPS; step++) {
    weights.widen(a[step % 2], step, by);
    fence_products();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const uint64 b = moved(first, step / 2 * TOKENS * TILE_ROW + step % 2 * 64 + half * 32);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        ::Product<TOKENS>::registers_shared(warp.sums[m], a[step % 2][half][m], b, true);
      }
    }
    commit_products();
    if (step + 1 < STEPS) wait_products<1>();
  }
}

// Grid: (thread blocks, no more than there are chunks), NUM_THREADS threads; Shared is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_THREADS, BLOCKS)
    few_bits_warpgroups(Element* __restrict__ output,              // [num_tokens, out_features]
                        const unsigned char* __restrict__ digits,  // [out_features, in_features * WEIGHT_BITS / 8]
                        const __half* __restrict__ scales,         // [out_features, num_groups]
                        const __half* __restrict__ minimums,       // the same, or null
                        const Element* __restrict__ bias,          // [out_features], or null
                        const Element* input,                      // [num_tokens, in_features]
                        float2* left_sums,  // [gridDim.x, ROW_TILES * TOKENS / 8, NUM_THREADS]
                        uint32* counters,   // [1 + gridDim.x], zero before and after
                        int num_tokens, int in_features, int out_features, int num_groups, uint32 inverse) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int number = draw_number(&shared.number, counters);
  const Task of = {output,       digits,     scales,      minimums,     bias,       input,  left_sums,
                   counters + 1, num_tokens, in_features, out_features, num_groups, inverse};
  const Share share(of.num_tiles(), of.num_chunks(), number);
  const int count = share.end - share.begin;
  const WeightCopy weight_copy(of);

  // The weight is there from the beginning; the input may still be in the making.
  Walk ahead(share);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < count) weight_copy.copy(shared.stages[i], ahead.tile, ahead.chunk);
    commit_copies();
    ahead.advance();
  }
  wait_for_previous_kernel();
  Walk here(share);
  const Lane lane;
  Ending ending(of, number);
  WarpSums warp;
  warp.clear();
  GroupScales next_groups;
  InputUnits units(of);
  if (count > 0) {
    next_groups.load(of, lane, here.tile, here.chunk);
    units.load(here.chunk);
    units.store(shared.inputs[0]);
  }
  int stage = 0, beside = 0, first_chunk = here.chunk;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // everybody's copies and stores are here, and nobody reads what is filled next
    if (i + STAGES - 1 < count) {
      weight_copy.copy(shared.stages[stage == 0 ? STAGES - 1 : stage - 1], ahead.tile, ahead.chunk);
      ahead.advance();
    }
    commit_copies();
    const int tile = here.tile, chunk = here.chunk;
    here.advance();
    const PairScales by(next_groups);
    if (i + 1 < count) {
      next_groups.load(of, lane, here.tile, here.chunk);
      units.load(here.chunk);
    }
    const Weights weights(shared.stages[stage], lane);
    multiply(warp, shared.inputs[beside], weights, by, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    beside = beside + 1 == INPUT_STAGES ? 0 : beside + 1;
    units.store(shared.inputs[beside]);  // of the last chunk once more, which nobody reads
    wait_products<0>();  // NOTE: with any under way over a branch the compiler has each wait for the one before
    if (i + 1 < count && here.tile == tile) continue;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++) settle(warp.sums[m]);
    ending.end_run(shared.meeting, warp, lane, of, share, tile, first_chunk, chunk + 1);
    warp.clear();
    first_chunk = here.chunk;
  }
}
