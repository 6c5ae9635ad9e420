// In which order weights of few bits come, and with them the inputs that they are multiplied by: a row in runs of
// 64 bytes, which go to the warps in turn, two at a time, four of each to a slot of the ring. Included by
// layer_sizes.cuh.
//
// A run is what the four lanes of a row read at a time, 16 bytes each. Of 4 bits it is a group of 128 elements,
// which have a scale and a minimum in common; 8 bits have a scale a row.
//
// There is one token, and a product of tensor cores has eight columns. So lane g has the input of run g / 2 alone,
// a quarter of what would be in registers otherwise: each run is multiplied by the inputs of all four, and the two
// columns of its own are looked at. Inputs of weights that are integers are integers too, of two digits
// (few_bits_digits.cuh), a column each.
//
// Rows lie without gaps in a slot, so that those that are whole there come in one copy. Where two rows would fall
// into the same banks, odd rows' runs are read in another order, run r ^ 1 for run r. No product minds that: it has
// the inputs of both.

#pragma once

using StoredWeight = unsigned char;

constexpr int RUN_BYTES = 64, WARP_RUNS = 4;           // of a row; of a warp in a slot
constexpr int SLOT_RUNS = WARP_RUNS * NUM_WARPS;       // of a row
constexpr int SLOT_ROW_BYTES = SLOT_RUNS * RUN_BYTES;  // of which a row's last one may have fewer

// Which of a slot's runs is number r of a warp's.
__device__ __forceinline__ constexpr int run_of(int warp, int r) {
  return r / 2 * 2 * NUM_WARPS + warp * 2 + r % 2;
}

// How a product's weights lie in slots, and which pieces of its input are a lane's.
template <int PRODUCT>
struct Order {
  static constexpr int KIND = PRODUCT == QKV ? QKV_KIND : PRODUCT == VALUES ? VALUES_KIND : LAYER_KIND;
  static constexpr int BITS = KIND == INT4_WEIGHTS ? 4 : 8;
  static constexpr bool GROUPED = KIND == INT4_WEIGHTS;  // a scale and a minimum for each run
  static constexpr bool INTEGERS = KIND != FP8_WEIGHTS;
  static constexpr int RUN = RUN_BYTES * 8 / BITS;    // inner elements
  static constexpr int RUN_PIECES = RUN / 4 / PIECE;  // of a lane
  static constexpr int ROW_RUNS = inner_of_product(PRODUCT) / RUN;
  static constexpr int ROW_BYTES = ROW_RUNS * RUN_BYTES;
  static constexpr int SLOTS_OF_ROW = ceil_div(ROW_RUNS, SLOT_RUNS);
  static constexpr int LAST_RUNS = ROW_RUNS - (SLOTS_OF_ROW - 1) * SLOT_RUNS;    // of a row's last slot
  static constexpr int LAST_WARP_RUNS = 2 * ceil_div(LAST_RUNS, 2 * NUM_WARPS);  // of a warp there, at most
  static constexpr int PIECES = SLOTS_OF_ROW * RUN_PIECES;
  static constexpr int PADDED = SLOTS_OF_ROW * SLOT_RUNS * RUN;  // elements
  static constexpr bool WHOLE_ROWS = SLOTS_OF_ROW == 1;
  static constexpr int STRIDE = WHOLE_ROWS ? ROW_BYTES : SLOT_ROW_BYTES;  // bytes between rows in a slot
  static constexpr bool SWAPS = STRIDE / RUN_BYTES % 2 == 0;              // the runs of odd rows
  // Groups of a row whose scales lie in a slot: those of all rows in one piece, or row by row.
  static constexpr int SCALE_STRIDE = SLOTS_OF_ROW == 1 ? ROW_RUNS : SLOT_RUNS;

  static_assert(inner_of_product(PRODUCT) % RUN == 0, "rows are whole runs");
  static_assert(!GROUPED || SLOTS_OF_ROW == 1 || ROW_RUNS % 8 == 0, "a row's scales begin at 16 bytes");

  static __device__ __forceinline__ int first(const Place& place) {
    return run_of(place.warp, place.g / 2) * RUN + place.q * (RUN / 4);
  }
  static __device__ __forceinline__ constexpr int offset(int i) {  // of piece i behind the first one
    return i / RUN_PIECES * SLOT_RUNS * RUN + i % RUN_PIECES * PIECE;
  }
};

static_assert(TOKENS == 1, "the columns of a product have runs of one token");
