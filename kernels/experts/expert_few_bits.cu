// What expert_linear.cu does, with weights in 8 or 4 bits: as many as TOKENS pairs of an expert by ROWS rows of its
// weights. What a chunk is, who has which part of it and how weights become 16 bits in registers is
// quantized/few_bits_tile.cuh's; a thread block makes the whole of its sums, first chunk to last, so that those of
// a pair are the same in any company.
//
// With PAIRED each sixteen rows of a tile are eight gates and then the eight values that go with them. Both are
// stored in 16 bits before they become one number, as gate.cuh has it.

#include "experts/expert_tile.cuh"
#include "experts/gate.cuh"
#include "quantized/few_bits_tokens.cuh"

constexpr int COLUMNS = PAIRED ? ROWS / 2 : ROWS;  // of the output, of a thread block
constexpr int GATE_ROWS = 8;                       // and as many values behind them

struct Stage {
  WeightStage weights;
  TokenStage tokens;
};

union Memory {
  Stage stages[STAGES];
  Meeting meeting;
};

// An expert's weights, from the first column of a thread block on.
struct ExpertRows {
  const unsigned char* digits;  // [num_rows, row_bytes]
  ScaleTable table;             // of the same rows
  const Element* bias;          // [num_rows], or null
  int num_columns;              // of the output, that are left
  int to_values;                // rows from a gate to its value

  // Where row `row` of a tile is here: 0 is the thread block's first one.
  __device__ __forceinline__ int at(int row) const {
    if (!PAIRED) return row;
    return column_of(row) + (row % 16 < GATE_ROWS ? 0 : to_values);
  }
  // The column of the output that row `row` of a tile goes into.
  static __device__ __forceinline__ int column_of(int row) {
    return PAIRED ? row / 16 * GATE_ROWS + row % GATE_ROWS : row;
  }
  // The same of a row that exists, whichever it is.
  __device__ __forceinline__ int near(int row) const { return column_of(row) < num_columns ? at(row) : 0; }
};

// What a thread copies of each chunk of the weights: a piece of every AT_ONCE-th row.
struct RowCopies {
  static constexpr int AT_ONCE = NUM_THREADS / CHUNK_PIECES, COPIES = ROWS / AT_ONCE;
  static constexpr int COLUMNS_AT_ONCE = PAIRED ? AT_ONCE / 2 : AT_ONCE;
  static_assert(AT_ONCE % 16 == 0, "a thread has gates alone, or values");
  const unsigned char* from;
  int row_bytes, at, place, num_columns;

  __device__ __forceinline__ RowCopies(const ExpertRows& rows, int row_bytes) : row_bytes(row_bytes) {
    const int row = threadIdx.x / CHUNK_PIECES, piece = threadIdx.x % CHUNK_PIECES;
    at = piece * 16;
    from = settled(rows.digits + static_cast<int64>(rows.at(row)) * row_bytes + at);
    place = settled(weight_place(row, piece));
    num_columns = rows.num_columns - ExpertRows::column_of(row);
  }

  __device__ __forceinline__ void copy(WeightStage& stage, int chunk) const {
    const int offset = chunk * CHUNK_BYTES, num_valid = offset + at < row_bytes ? num_columns : 0;
    const unsigned char* first = from + offset;
    unsigned char* to = stage.bytes + place;
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
      copy_16_async(to + i * AT_ONCE * CHUNK_BYTES, first, i * COLUMNS_AT_ONCE < num_valid);
      first += static_cast<int64>(COLUMNS_AT_ONCE) * row_bytes;
    }
  }
};

// What a thread copies of each chunk of the input: the same piece of every AT_ONCE-th pair's row.
struct PairCopies {
  static constexpr int AT_ONCE = NUM_THREADS / TOKEN_PIECES, PASSES = ceil_div(TOKENS, AT_ONCE);
  const Element* input;
  const int* rows;  // [TOKENS], in shared memory; less than 0: there is none
  int token, at, place, in_features;

  __device__ __forceinline__ PairCopies(const Element* input, const int* rows, int in_features)
      : rows(rows), token(threadIdx.x / TOKEN_PIECES), in_features(in_features) {
    at = threadIdx.x % TOKEN_PIECES * PIECE;
    this->input = settled(input + at);
    place = settled(token_place(token, threadIdx.x % TOKEN_PIECES));
  }

  __device__ __forceinline__ void copy(TokenStage& stage, int chunk) const {
    const bool is_inside = chunk * CHUNK + at < in_features;
    const Element* from = input + chunk * CHUNK;
#pragma unroll
    for (int i = 0; i < PASSES; i++) {
      if (TOKENS % AT_ONCE != 0 && token + i * AT_ONCE >= TOKENS) break;
      const int row = rows[token + i * AT_ONCE];
      copy_16_async(stage.bytes + place + i * AT_ONCE * TOKEN_PIECES * 16,
                    from + static_cast<int64>(row) * in_features, is_inside && row >= 0);
    }
  }
};

// The results of a tile, [token][row] in shared memory, to the rows that `pairs` names of an output that begins
// with the thread block's first column.
__device__ __forceinline__ void write(Meeting& meeting, Element* output, const int* pairs, int count,
                                      int out_features, int num_columns, const Gate& gate) {
  constexpr int PIECES = COLUMNS / PIECE;
  for (int i = threadIdx.x; i < count * PIECES; i += NUM_THREADS) {
    const int token = i / PIECES, column = i % PIECES * PIECE;
    if (column >= num_columns) continue;
    uint4 found = load_16(meeting.result(token, PAIRED ? 2 * column : column));
    if (PAIRED) {
      float gates[PIECE], values[PIECE];
      unpack(found, gates);
      unpack(load_16(meeting.result(token, 2 * column + GATE_ROWS)), values);
#pragma unroll
      for (int j = 0; j < PIECE; j++) gates[j] = gate(gates[j], values[j]);
      found = pack(gates);
    }
    store_16(output + static_cast<int64>(pairs[token]) * out_features + column, found);
  }
}

// Grid: (num_tiles, ceil(out_features / COLUMNS)), NUM_THREADS threads; Memory is dynamic.
extern "C" __global__ void __launch_bounds__(NUM_THREADS, BLOCKS)
    expert_few_bits(Element* __restrict__ output,              // [num_pairs, out_features]
                    const unsigned char* __restrict__ digits,  // [num_experts, out_features, row_bytes], PAIRED:
                                                               // twice the rows, gates and then values
                    const Element* __restrict__ bias,          // [num_experts, rows of a weight], or null
                    const Element* input,                      // [num_pairs / pairs_per_row, in_features]
                    const int* order,                          // [num_pairs]
                    const int4* tiles,                         // [num_tiles], none with more than TOKENS pairs
                    const __half* __restrict__ scales,         // [num_experts, rows of a weight, num_groups]
                    const __half* __restrict__ minimums,       // the same, or null
                    int num_groups, uint32 inverse, int in_features, int out_features, int pairs_per_row,
                    int tiles_are_known, float sharpness, float limit) {
  extern __shared__ __align__(128) unsigned char bytes[];
  __shared__ int pairs[TOKENS], rows[TOKENS];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  wait_for_tiles(tiles_are_known);
  const ExpertTile tile(__ldcg(tiles + blockIdx.x));
  if (tile.count == 0) return;
  const int row_bytes = in_features / 8 * WEIGHT_BITS, first_column = blockIdx.y * COLUMNS;
  const int64 first_row =
      static_cast<int64>(tile.expert) * (PAIRED ? 2 * out_features : out_features) + first_column;
  const ExpertRows of = {digits + first_row * row_bytes,
                         {scales + first_row * num_groups,
                          minimums == nullptr ? nullptr : minimums + first_row * num_groups, num_groups, inverse},
                         bias == nullptr ? nullptr : bias + first_row,
                         out_features - first_column,
                         out_features};
  const RowCopies weights(of, row_bytes);
  const int num_chunks = ceil_div(in_features, CHUNK);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1 && i < num_chunks; i++) weights.copy(memory.stages[i].weights, i);
  for (int i = threadIdx.x; i < TOKENS; i += NUM_THREADS) {
    const int pair = i < tile.count ? __ldcg(order + tile.first + i) : -1;
    pairs[i] = pair;
    rows[i] = pair < 0 ? -1 : pair / pairs_per_row;
  }
  __syncthreads();
  const PairCopies tokens(input, rows, in_features);
  wait_for_previous_kernel();
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < num_chunks) tokens.copy(memory.stages[i].tokens, i);
    commit_copies();
  }

  const Lane lane;
  const auto row_of = [&](int m, int h) { return of.near(m * 64 + h * 8 + lane.row); };
  WarpSums warp;
  warp.clear();
  GroupScales groups, next_groups;
  next_groups.load(of.table, lane, 0, row_of);
  int stage = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < num_chunks; chunk++) {
    wait_copies<STAGES - 2>();
    __syncthreads();  // everybody's copies are here, and nobody reads the stage that is filled next
    if (chunk + STAGES - 1 < num_chunks) {
      Stage& next = memory.stages[stage == 0 ? STAGES - 1 : stage - 1];
      weights.copy(next.weights, chunk + STAGES - 1);
      tokens.copy(next.tokens, chunk + STAGES - 1);
    }
    commit_copies();
    groups = next_groups;
    if (chunk + 1 < num_chunks) next_groups.load(of.table, lane, chunk + 1, row_of);
    multiply(warp, memory.stages[stage].weights, memory.stages[stage].tokens, groups, lane);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }

  MetSums sums;
  sums.meet(memory.meeting, warp, lane);
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    const int row = of.near(MetSums::row_of(lane, m));
    sums.scale(m, of.table.scales + row, of.bias == nullptr ? nullptr : of.bias + row);
  }
  __syncthreads();  // the pairs of sums are read
  sums.store(memory.meeting, lane);
  __syncthreads();
  const Gate gate = {sharpness, limit};
  write(memory.meeting, output + first_column, pairs, tile.count, out_features, of.num_columns, gate);
}
