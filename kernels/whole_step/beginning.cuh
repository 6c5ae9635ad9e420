// The beginning of a step of persistent_decode.cu: what the first product multiplies, brought while its weights
// come.

#pragma once

#include "whole_step/inputs.cuh"

// The lane's words of the warp's part of shared memory; lanes beyond the columns have those of others.
__device__ __forceinline__ uint32* first_words(Shared& shared, const Place& place) {
  static_assert(COLUMNS * 8 * NORM_STEPS * sizeof(uint32) <= sizeof(shared.rows[0]), "a part of a row has room");
  return reinterpret_cast<uint32*>(shared.rows[place.warp]) + (place.g % COLUMNS * 4 + place.q) * 2 * NORM_STEPS;
}

// The embeddings to shared memory, as the lanes multiply them: each warp its part, for itself.
__device__ __forceinline__ void bring_embeddings(Shared& shared, const Embeddings& embeddings) {
  const Place place;
  uint32 words[NORM_STEPS][2];
  collect_embeddings(words, embeddings);
#pragma unroll
  for (int i = 0; i < 2 * NORM_STEPS; i++) {
    if (place.g < COLUMNS) first_words(shared, place)[i] = words[i / 2][i % 2];
  }
  __syncwarp();
}

// And from there.
__device__ __forceinline__ void take_embeddings(uint32 (&words)[NORM_STEPS][2], Shared& shared) {
  const Place place;
#pragma unroll
  for (int i = 0; i < 2 * NORM_STEPS; i++) words[i / 2][i % 2] = first_words(shared, place)[i];
}
