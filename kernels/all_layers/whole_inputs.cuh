// The inputs of products with weights of 16 bits: each lane has a token's, or a split's of it, all that it
// multiplies; or where all lanes of a warp multiply by the same token, their shared memory has it. Included by
// layer_inputs.cuh.

#pragma once

// The warp's part of a product's row, which lane g has one of, once all are there. The first piece is looked at
// until it is there, and then all: a look at many takes longer.
// NOTE: here and in `collect_shared` loops of their own, since `look_until_there` makes more spills of them.
template <int PRODUCT>
__device__ __forceinline__ void collect(uint4 (&pieces)[Order<PRODUCT>::PIECES], const Element* row) {
  constexpr int PIECES = Order<PRODUCT>::PIECES;
  const Element* const from = row + Order<PRODUCT>::first(Place());
  int num_looks = 0;
  if (PIECES > 4) {
#pragma unroll 1
    while (__any_sync(FULL_WARP, look_at(pieces[0], from) == NOT_THERE)) {
      if (++num_looks == MAX_LOOKS) __trap();  // a thread block is missing: an error, not a GPU that never answers
    }
  }
#pragma unroll 1
  for (;; num_looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      highest = max(highest, look_at(pieces[i], from + Order<PRODUCT>::offset(i)));
    }
    if (!__any_sync(FULL_WARP, highest == NOT_THERE)) return;
    if (num_looks >= MAX_LOOKS) __trap();
  }
}

// Rows that the lanes of a warp share: lane g has every SUB_LANES-th piece of those of token g % TOKENS that lanes
// q multiply by. Where there are several, the first one of all is looked at until it is there, and then the others.
template <int PRODUCT>
constexpr int SHARED_LOADS = ceil_div(Order<PRODUCT>::PIECES, SUB_LANES);  // of a lane
template <int PRODUCT>
__device__ __forceinline__ void collect_shared(uint4 (&own)[SHARED_LOADS<PRODUCT>], const Element* rows) {
  using Of = Order<PRODUCT>;
  const Place place;
  const Element* const from = rows + place.g % TOKENS * Of::PADDED + Of::first(place);
  int num_looks = 0;
  if (SHARED_LOADS<PRODUCT> > 1) {
#pragma unroll 1
    while (__any_sync(FULL_WARP, look_at(own[0], from) == NOT_THERE)) {
      if (++num_looks == MAX_LOOKS) __trap();
    }
  }
#pragma unroll 1
  for (;; num_looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int j = 0; j < SHARED_LOADS<PRODUCT>; j++) {
      const int piece = min(SUB_LANES * j + place.g / TOKENS, Of::PIECES - 1);
      highest = max(highest, look_at(own[j], from + Of::offset(piece)));
    }
    if (!__any_sync(FULL_WARP, highest == NOT_THERE)) return;
    if (num_looks >= MAX_LOOKS) __trap();
  }
}

// Rows that all lanes of a warp multiply by, which lie in `rows`: lanes that multiply by the same token share them.
template <int PRODUCT>
__device__ __forceinline__ void collect_rows(uint4 (&pieces)[Order<PRODUCT>::PIECES], Shared& shared,
                                             const Element* rows) {
  const Place place;
#if TOKENS == 8
  collect<PRODUCT>(pieces, rows + place.g * Order<PRODUCT>::PADDED);
#else
  uint4 own[SHARED_LOADS<PRODUCT>];
  collect_shared<PRODUCT>(own, rows);
  uint4* const exchange = shared.exchange[place.warp];
#pragma unroll
  for (int j = 0; j < SHARED_LOADS<PRODUCT>; j++) {
    exchange[place.lane] = own[j];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < SUB_LANES && j * SUB_LANES + k < Order<PRODUCT>::PIECES; k++) {
      pieces[j * SUB_LANES + k] = exchange[(place.g % TOKENS + k * TOKENS) * 4 + place.q];
    }
    __syncwarp();
  }
#endif
}

#if SPLITS > 1
// The splits of a token's attention put together: lane g has split g / TOKENS of token g % TOKENS, which is `row`.
__device__ __forceinline__ void merge_splits(uint4 (&pieces)[Order<OUT>::PIECES], const Published& published,
                                             int row) {
  // Lanes beyond those have the same once more, which no other lane hears of.
  constexpr int PIECES = Order<OUT>::PIECES, FROM = 2 * TOKENS * SPLITS,
                TO = 4 * TOKENS;  // lanes of a token's splits
  const Place place;
  const uint32* lse = published.lse(blockIdx.x % COPIES, row);
  uint32 states[PIECES];
  look_until_there([&] {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      uint32 word[1] = {};
      look<1>(word, lse + min(Order<OUT>::first(place) + Order<OUT>::offset(i), ATTENDED - 1) / HEAD_SIZE);
      states[i] = word[0];
      highest = max(highest, word[0]);
    }
    return highest == NOT_THERE;
  });
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    const float state = __uint_as_float(states[i]), highest = warp_max<FROM, TO>(state);
    const float weight = exp2_below(state, highest);
    const float all = warp_sum<FROM, TO>(weight);
    const float factor = all > 0.0f ? weight / all : 0.0f;
    float values[PIECE];
    unpack(pieces[i], values);
#pragma unroll
    for (int v = 0; v < PIECE; v++) values[v] = warp_sum<FROM, TO>(factor > 0.0f ? values[v] * factor : 0.0f);
    pieces[i] = pack(values);
  }
}
#endif

// What is attended, of the token or the split of it that lane g has.
__device__ __forceinline__ void collect_attended(uint4 (&pieces)[Order<OUT>::PIECES], Shared& shared,
                                                 const Published& published) {
#if TOKENS * SPLITS == 1
  collect_rows<OUT>(pieces, shared, published.mine() + Published::ATTENDED_AT);
#else
  const Place place;
  const int row = place.g % TOKENS * SPLITS + place.g / TOKENS % SPLITS;
  collect<OUT>(pieces, published.mine() + Published::ATTENDED_AT + row * Order<OUT>::PADDED);
#if SPLITS > 1
  merge_splits(pieces, published, row);
#endif
#endif
}

#if MIDDLE_IS_SHARED
__device__ __forceinline__ void collect_middle(Shared& shared, const Published& published) {
  const Place place;
  uint4 own[SHARED_LOADS<DOWN>];
  collect_shared<DOWN>(own, published.mine() + Published::MIDDLE_AT);
  uint4* const to = input_memory(shared, place.warp).pieces;
#pragma unroll
  for (int j = 0; j < SHARED_LOADS<DOWN>; j++) {
    to[WarpInput::at(SUB_LANES * j + place.g / TOKENS, place.g % TOKENS, place.q)] = own[j];
  }
  __syncwarp();
}
#endif

// The residual stream for a product behind a norm.
template <int PRODUCT>
struct StreamInput {
  static constexpr bool IS_HALFWAY = PRODUCT == UP;

  __device__ __forceinline__ void load(const Layer&) {}
  __device__ __forceinline__ void collect(uint4 (&pieces)[Order<PRODUCT>::PIECES], Shared& shared,
                                          const Published& from, const Element*, float) {
    collect_rows<PRODUCT>(pieces, shared,
                          from.mine() + (IS_HALFWAY ? Published::HALFWAY_AT : Published::STREAM_AT));
  }
};
