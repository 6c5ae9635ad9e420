// In which order weights of 16 bits come, and with them the inputs that they are multiplied by: stages of 1,024
// inner elements, whose steps go to the warps in turn, so that short rows have work for all of them. Included by
// layer_sizes.cuh.

#pragma once

using StoredWeight = Element;

constexpr int STAGE_FEATURES = 1024;                               // inner elements of a stage of the ring
constexpr int STAGE_STEPS = STAGE_FEATURES / STEP / NUM_WARPS;     // of a warp
constexpr int ROW_STRIDE = STAGE_FEATURES + 64 / sizeof(Element);  // elements; no bank conflicts
static_assert(STAGE_STEPS * STEP * NUM_WARPS == STAGE_FEATURES, "every warp gets whole steps of a stage");

// A slot of the ring has two stages: of one unit, or where a row is one stage, of two units.
constexpr int SLOT_STAGES = 2, SLOT_FEATURES = SLOT_STAGES * STAGE_FEATURES, SLOT_STEPS = SLOT_STAGES * STAGE_STEPS;
__host__ __device__ constexpr bool is_short(int inner) { return inner <= STAGE_FEATURES; }
__host__ __device__ constexpr int slots_of(int inner) { return ceil_div(inner, SLOT_FEATURES); }
__host__ __device__ constexpr int stages_of(int inner) { return ceil_div(inner, STAGE_FEATURES); }

// Which pieces of a product's input are a lane's.
template <int PRODUCT>
struct Order {
  static constexpr int PIECES = ceil_div(inner_of_product(PRODUCT), NUM_WARPS* STEP);
  static constexpr int PADDED = stages_of(inner_of_product(PRODUCT)) * STAGE_FEATURES;  // elements

  static __device__ __forceinline__ int first(const Place& place) { return place.warp * STEP + place.q * PIECE; }
  static __device__ __forceinline__ constexpr int offset(int i) {  // of piece i behind the first one
    return i / STAGE_STEPS * STAGE_FEATURES + i % STAGE_STEPS * NUM_WARPS * STEP;
  }
};

constexpr int INPUT_PIECES = round_up(Order<DOWN>::PIECES, 8);  // of a lane's middle in shared memory
