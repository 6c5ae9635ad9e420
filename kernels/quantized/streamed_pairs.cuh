// A warp's part of a product with weights of few bits and few tokens: two units of 8 rows at a time, which are the
// 16 rows of `mma`, and the tokens its 8 columns, so that no place of it stays empty. Included by
// streamed_product.cuh.
//
// A lane reads up to 16 bytes of a row at a time; its input comes in the same order (StreamPlace). They become
// operands right before they are multiplied, a chunk at a time, of as many words as there are registers for beside
// the input.

#pragma once

#include "products/streamed_input.cuh"
#include "quantized/scale_words.cuh"

constexpr int TOGETHER = 2;  // units

// The product of tokens with rows of a pair of units, each group of inner elements multiplied by its scale: row g
// of unit u and token 2q + i.
struct StreamSums {
  float sums[2][2] = {};
};

// What a lane reads at a time of one row.
struct LaneRun {
  StoredAs<RUN_BYTES>::Type bytes = {};

  __device__ __forceinline__ StoredPiece piece(int i) const {
    const StoredPiece* pieces = reinterpret_cast<const StoredPiece*>(&bytes);
    return pieces[i];
  }
};

// Scales, and minimums if there are, of a warp's parts of a stage: of row g of both units.
struct StageScales {
#if SCALE_GROUP
  ScaleWords<PARTS> scales[2], minimums[MINIMUMS ? 2 : 1];
#endif

  // `index` is the first unit's number; the second one may not exist.
  __device__ __forceinline__ StageScales(const StreamShared& shared, const StreamPlace& place, int index,
                                         int stage) {
#if SCALE_GROUP
    const int first = (stage * STAGE_FEATURES + place.warp * STAGE_SEGMENT) / SCALE_GROUP;
    const int group = min(first, ROW_GROUPS - PARTS);  // behind the end of a row there is no input
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const auto& from = shared.group_scales[(index + u) % SCALE_PLACES];
      scales[u].load(from[0] + place.g * ROW_GROUPS + group);
      if (MINIMUMS) minimums[MINIMUMS * u].load(from[MINIMUMS] + place.g * ROW_GROUPS + group);
    }
#endif
  }
  __device__ __forceinline__ uint32 bits() const {
#if SCALE_GROUP
    return scales[0].bits() | scales[1].bits() | (MINIMUMS ? minimums[0].bits() | minimums[MINIMUMS].bits() : 0);
#else
    return 0;
#endif
  }
  // `inputs` are sums of tokens' input; `token` is 2q.
  __device__ __forceinline__ void add(StreamSums& to, const float (&of_part)[2][2], const InputSums* inputs,
                                      int token, int part) const {
#pragma unroll
    for (int i = 0; i < min(2, ROOM); i++) {
      const InputSums input = SUMS_INPUT ? inputs[min(token + i, ROOM - 1)] : InputSums();
#pragma unroll
      for (int u = 0; u < 2; u++) {
        const float product = of_part[u][i] - (Raw::SHIFTED ? input.excess : 0.0f);
#if SCALE_GROUP
        to.sums[u][i] += product * scales[u].of(part);
        if (MINIMUMS) to.sums[u][i] += input.sum * minimums[MINIMUMS * u].of(part);
#else
        to.sums[u][i] += product;
#endif
      }
    }
  }
};

// Sums of products with raw weights, of words x and z and of y and w of a piece.
struct PairProducts {
  float xz[4] = {}, yw[4] = {};

  __device__ __forceinline__ void add(uint4 tokens, uint4 a, uint4 b) {
    const uint32 even[4] = {a.x, b.x, a.z, b.z}, odd[4] = {a.y, b.y, a.w, b.w};
    const uint32 even_tokens[2] = {tokens.x, tokens.z}, odd_tokens[2] = {tokens.y, tokens.w};
    mma_16x8x16<Element>(xz, even, even_tokens);
    mma_16x8x16<Element>(yw, odd, odd_tokens);
  }
  __device__ __forceinline__ void add_to(float (&sums)[2][2]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i / 2][i % 2] += xz[i] + yw[i];
  }
};

// Steps of a chunk: whole runs, and whole parts or a share of one.
constexpr int MOST_WORDS = 8;  // of a row
constexpr int chunk_steps() {
  int steps = MOST_WORDS / (STORED_BYTES / 4);
  const auto fits = [](int count) {
    return STAGE_STEPS % count == 0 && count % RUN_PIECES == 0 &&
           (PART_STEPS % count == 0 || count % PART_STEPS == 0);
  };
  while (!fits(steps)) steps--;
  return steps;
}
constexpr int CHUNK_STEPS = chunk_steps(), CHUNKS = STAGE_STEPS / CHUNK_STEPS;
constexpr int CHUNK_PARTS = ceil_div(CHUNK_STEPS, PART_STEPS);  // that it has something of
// Chains of sums that do not wait for each other: one for each part of a chunk, or two for its share of one.
constexpr int CHAINS = CHUNK_PARTS > 1 || CHUNK_STEPS % 2 != 0 ? CHUNK_PARTS : 2;
constexpr int CHAIN_STEPS = CHUNK_STEPS / CHAINS;

// This warp's part of the stages that come next, of the thread block's units number `index` and, if there is, the
// one after it.
__device__ __forceinline__ void multiply_stage(StreamSums& sums, StreamShared& shared, const StreamPlace& place,
                                               Ring<STAGES>& at, const StreamInput& input, int index, int stage,
                                               int num_units) {
  const bool both = unit_here(index + 1) < num_units;  // otherwise the same again, for nobody
  Ring<STAGES> next = at;
  next.advance();
  const int offset = place.g * ROW_STRIDE + place.first * WEIGHT_BITS / 8;
  const unsigned char* from[2] = {shared.ring[at.stage] + offset,
                                  shared.ring[both ? next.stage : at.stage] + offset};
  wait(shared_address(&shared.filled[at.stage]), at.parity);
  if (both) wait(shared_address(&shared.filled[next.stage]), next.parity);
  const StageScales scales(shared, place, index, stage);
  const InputSums(*inputs)[ROOM] = shared.input_sums[place.warp] + stage * PARTS;
  PairProducts chains[CHAINS];
  uint32 seen = scales.bits();
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    LaneRun runs[2][CHUNK_STEPS / RUN_PIECES];
#pragma unroll
    for (int r = 0; r < CHUNK_STEPS / RUN_PIECES; r++) {
      const int step = chunk * CHUNK_STEPS + r * RUN_PIECES;
      if (!place.exists(stage, step)) continue;  // what lies there may be no number
#pragma unroll
      for (int u = 0; u < 2; u++) {
        runs[u][r].bytes = *reinterpret_cast<const StoredAs<RUN_BYTES>::Type*>(from[u] + step * 4 * STORED_BYTES);
        seen |= first_word(runs[u][r].bytes);
      }
    }
    if (chunk + 1 == CHUNKS) {
      const bool there = all_are_there(seen);
      __syncwarp();  // the order that one lane arrives for
      if (there && place.lane == 0) {
        arrive(shared_address(&shared.read[at.stage]));
        if (both) arrive(shared_address(&shared.read[next.stage]));
      }
    }
#pragma unroll
    for (int i = 0; i < CHAIN_STEPS; i++) {
#pragma unroll
      for (int chain = 0; chain < CHAINS; chain++) {
        const int s = chain * CHAIN_STEPS + i, run = s / RUN_PIECES, piece = s % RUN_PIECES;
        chains[chain].add(input.piece(stage, chunk * CHUNK_STEPS + s), Raw::piece(runs[0][run].piece(piece)),
                          Raw::piece(runs[1][run].piece(piece)));
      }
    }
    if ((chunk + 1) * CHUNK_STEPS % PART_STEPS != 0) continue;
#pragma unroll
    for (int p = 0; p < CHUNK_PARTS; p++) {
      float of_part[2][2] = {};
#pragma unroll
      for (int chain = p * CHAINS / CHUNK_PARTS; chain < (p + 1) * CHAINS / CHUNK_PARTS; chain++) {
        chains[chain].add_to(of_part);
        chains[chain] = PairProducts();
      }
      const int part = chunk * CHUNK_STEPS / PART_STEPS + p;
      scales.add(sums, of_part, inputs[part], 2 * place.q, part);
    }
  }
  at.advance();
  if (both) at.advance();
}

// Lays the warps' sums side by side, at `to` [2][ROOM][UNIT]; `total` reads them from then on.
__device__ __forceinline__ void share_sums(float (*to)[ROOM * UNIT], const StreamSums& sums,
                                           const StreamPlace& place) {
#pragma unroll
  for (int i = 0; i < min(2, ROOM); i++) {
    const int token = 2 * place.q + i;
    if (token >= ROOM) continue;
#pragma unroll
    for (int u = 0; u < 2; u++) to[u][token * UNIT + place.g] = sums.sums[u][i];
  }
}
