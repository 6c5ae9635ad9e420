// One warp's part of a row of logits, read 16 bytes at a time whatever the row's alignment.

#pragma once

#include "common/row.cuh"
#include "sampling/penalties.cuh"

constexpr int PIECE = ROW_ELEMENTS;  // logits in 16 bytes
constexpr int PIECES_AHEAD = 3;      // loads under way in each thread, where nobody says otherwise

struct RowSlice {
  const Element* row;  // [vocab_size]
  Penalties penalties;
  const uint32* mask;  // [ceil(vocab_size / 32)]: bit i % 32 of word i / 32: whether token i may be chosen; or null
  int vocab_size;
  int skipped;     // logits of other rows in the piece where this row begins
  int begin, end;  // pieces of this warp
  int most;        // pieces that a warp of the row has; at least one

  __device__ __forceinline__ RowSlice(const Element* row, const Penalties& penalties, const uint32* mask,
                                      int vocab_size, int warp, int num_warps)
      : row(row), penalties(penalties), mask(mask), vocab_size(vocab_size) {
    skipped = static_cast<int>(reinterpret_cast<uint64>(row) % 16 / sizeof(Element));
    const int num_pieces = ceil_div(skipped + vocab_size, PIECE);
    most = ceil_div(num_pieces, num_warps);
    begin = min(warp * most, num_pieces);
    end = min(begin + most, num_pieces);
  }

  // So many of this warp's pieces, the first `done` left out; none where it has no more.
  __device__ __forceinline__ RowSlice part(int done, int num_pieces) const {
    RowSlice taken = *this;
    taken.begin = min(begin + done, end);
    taken.end = min(taken.begin + num_pieces, end);
    return taken;
  }

  __device__ __forceinline__ int first_token(int piece) const { return piece * PIECE - skipped; }

  // NOTE: the first and the last piece may hold logits of the neighbours. They are read and put aside: a piece with
  // one logit of this row in it can be read as a whole.
  __device__ __forceinline__ uint4 fetch(int piece) const { return load_16(row + first_token(piece)); }

  // Bit j says whether token `first + j` may be chosen; of tokens that are none it says anything.
  __device__ __forceinline__ uint32 allowed_from(int first) const {
    const int word = first >> 5, shift = first & 31;
    const uint64 low = word >= 0 ? mask[word] : 0;
    // Rows that begin at 16 bytes have the bits of a piece in one word.
    const uint64 high = shift > 32 - PIECE && 32 * (word + 1) < vocab_size ? mask[word + 1] : 0;
    return static_cast<uint32>((high << 32 | low) >> shift);
  }

  // What counts as each token's logit; minus infinity outside of the row, and for tokens that may not be chosen.
  __device__ __forceinline__ void convert(uint4 bytes, int piece, float (&logits)[PIECE]) const {
    const Row elements = as_row(bytes);
    const int first = first_token(piece);
#pragma unroll
    for (int j = 0; j < PIECE; j++) logits[j] = to_float(elements.elements[j]);
    if (first < 0 || first + PIECE > vocab_size) {
#pragma unroll
      for (int j = 0; j < PIECE; j++) {
        if (static_cast<uint32>(first + j) >= static_cast<uint32>(vocab_size)) logits[j] = NEGATIVE_INFINITY;
      }
    }
    if (mask != nullptr) {
      const uint32 allowed = allowed_from(first);
#pragma unroll
      for (int j = 0; j < PIECE; j++) {
        if (!(allowed >> j & 1)) logits[j] = NEGATIVE_INFINITY;
      }
    }
    if (penalties.counts != nullptr) {
#pragma unroll
      for (int j = 0; j < PIECE; j++) {
        if (logits[j] != NEGATIVE_INFINITY) logits[j] = penalties.apply(logits[j], first + j);
      }
    }
  }

  // The first pieces of this lane, on their way.
  template <int AHEAD>
  __device__ __forceinline__ void fetch_first(uint4 (&next)[AHEAD]) const {
    const int first = begin + threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      if (first + i * WARP_SIZE < end) next[i] = fetch(first + i * WARP_SIZE);
    }
  }

  // `use(first_token, logits)` for every piece of this lane, of which `fetch_first` has asked for the first ones.
  // NOTE: the next piece is on its way meanwhile. Not unrolled: the kernel runs once through much code, and what it
  // waits for most is instructions. Pieces are counted down: where a slice ends would be worked out in every turn.
  template <int AHEAD, typename Use>
  __device__ __forceinline__ void for_each_from(uint4 (&next)[AHEAD], Use use) const {
    int piece = begin + threadIdx.x % WARP_SIZE;
#pragma unroll 1
    for (int left = ceil_div(end - piece, WARP_SIZE); left > 0; left--, piece += WARP_SIZE) {
      const uint4 bytes = next[0];
#pragma unroll
      for (int i = 1; i < AHEAD; i++) next[i - 1] = next[i];
      if (left > AHEAD) next[AHEAD - 1] = fetch(piece + AHEAD * WARP_SIZE);
      float logits[PIECE];
      convert(bytes, piece, logits);
      use(first_token(piece), logits);
    }
  }

  // The same without a beginning of its own.
  template <typename Use>
  __device__ __forceinline__ void for_each(Use use) const {
    uint4 next[PIECES_AHEAD];
    fetch_first(next);
    for_each_from(next, use);
  }
};
