// The inputs of products with weights of 16 bits: each lane has a token's, or a split's of it, all that it
// multiplies; or where all lanes of a warp multiply by the same token, their shared memory has it. Included by
// layer_inputs.cuh.

#pragma once

// The warp's part of a product's row, which lane g has one of, once all are there. The first piece is looked at
// until it is there, and then all: a look at many takes longer.
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
#pragma unroll 1
  for (int looks = 0;; looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      uint32 word[1] = {};
      look<1>(word, lse + min(Order<OUT>::first(place) + Order<OUT>::offset(i), ATTENDED - 1) / HEAD_SIZE);
      states[i] = word[0];
      highest = max(highest, word[0]);
    }
    if (!__any_sync(FULL_WARP, highest == NOT_THERE)) break;
    if (looks == MAX_LOOKS) __trap();
  }
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
  const Place place;
#if TOKENS * SPLITS == 1
  uint4 own[SHARED_LOADS<OUT>];
  collect_shared<OUT>(own, published.mine() + Published::ATTENDED_AT);
  uint4* const exchange = shared.exchange[place.warp];
#pragma unroll
  for (int j = 0; j < SHARED_LOADS<OUT>; j++) {
    exchange[place.lane] = own[j];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 8 && j * 8 + k < Order<OUT>::PIECES; k++) pieces[j * 8 + k] = exchange[k * 4 + place.q];
    __syncwarp();
  }
#else
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

// Rows of the residual stream behind a norm. All lanes share the work: lane g has every SUB_LANES-th piece of token
// g % TOKENS, and hands what comes out to the lane that multiplies it. Which pieces there are says the product
// behind.
template <int PRODUCT>
constexpr int NORM_LOADS = ceil_div(Order<PRODUCT>::PIECES, SUB_LANES);  // of a lane

// Where piece j of the lane lies in a row.
template <int PRODUCT>
__device__ __forceinline__ int normed_at(const Place& place, int j) {
  return Order<PRODUCT>::first(place) + Order<PRODUCT>::offset(j * SUB_LANES + place.g / TOKENS);
}

// The scales of a norm, which all tokens have in common: lane (g, q) has every eighth piece.
template <int PRODUCT>
struct NormScales {
  uint4 of[ceil_div(Order<PRODUCT>::PIECES, 8)];

  // Asked for before the rows are there.
  __device__ __forceinline__ void load(const Element* weight) {
    const Place place;
#pragma unroll
    for (int j = 0; j < static_cast<int>(sizeof(of) / sizeof(uint4)); j++) {
      const int at = Order<PRODUCT>::first(place) + Order<PRODUCT>::offset(8 * j + place.g);
      of[j] = load_16(weight + min(at, HIDDEN - PIECE));
    }
  }
};

// Has a barrier among all warps that multiply in it.
template <int PRODUCT>
__device__ __forceinline__ void collect_normed(uint4 (&pieces)[Order<PRODUCT>::PIECES], Shared& shared,
                                               const Element* rows, bool awaited, const NormScales<PRODUCT>& scales,
                                               float epsilon) {
  constexpr int LOADS = NORM_LOADS<PRODUCT>, PIECES = Order<PRODUCT>::PIECES;
  const Place place;
  const int token = place.g % TOKENS, sub = place.g / TOKENS;
  uint4 own[LOADS];
#pragma unroll 1
  for (int looks = 0;; looks++) {
    uint32 highest = 0;
#pragma unroll
    for (int j = 0; j < LOADS; j++) {
      const int inner = normed_at<PRODUCT>(place, j);
      highest = max(highest, look_at(own[j], rows + token * HIDDEN + min(inner, HIDDEN - PIECE)));
      if (inner >= HIDDEN) own[j] = make_uint4(0, 0, 0, 0);
    }
    if (!__any_sync(FULL_WARP, awaited && highest == NOT_THERE)) break;
    if (looks == MAX_LOOKS) __trap();
  }
  float sum = 0.0f, values[PIECE], factors[PIECE];
#pragma unroll
  for (int j = 0; j < LOADS; j++) {
    unpack(own[j], values);
#pragma unroll
    for (int v = 0; v < PIECE; v++) sum += values[v] * values[v];
  }
  sum = warp_sum<2, 1>(sum);
  if (TOKENS < 8) sum = warp_sum<16, 4 * TOKENS>(sum);
  if (place.q == 0 && sub == 0) shared.squares[place.warp][token] = sum;
  sync_warps();
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < NUM_WARPS; w++) total += shared.squares[w][token];
  const float factor = rsqrtf(total / HIDDEN + epsilon);
  uint4* const exchange = shared.exchange[place.warp];
#pragma unroll
  for (int j = 0; j < LOADS; j++) {
    uint4 scale = scales.of[j * SUB_LANES / 8];
    if (TOKENS > 1) {
      if (j * SUB_LANES % 8 == 0) {
        if (j > 0) __syncwarp();
        exchange[place.lane] = scale;
        __syncwarp();
      }
      scale = exchange[(j * SUB_LANES % 8 + sub) * 4 + place.q];
    }
    unpack(own[j], values);
    unpack(scale, factors);
#pragma unroll
    for (int v = 0; v < PIECE; v++) values[v] = scaled_by_norm<NORM>(values[v] * factor, factors[v], 0.0f);
    own[j] = pack(values);
  }
  if (TOKENS > 1) __syncwarp();
  if (TOKENS == 8) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) pieces[i] = own[i];
    return;
  }
#pragma unroll
  for (int j = 0; j < LOADS; j++) {
    exchange[place.lane] = own[j];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < SUB_LANES && j * SUB_LANES + k < PIECES; k++) {
      pieces[j * SUB_LANES + k] = exchange[(token + k * TOKENS) * 4 + place.q];
    }
    __syncwarp();
  }
}
