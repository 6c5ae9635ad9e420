// The inputs of the products of streamed_layers.cu: a warp's part of every token, waited for by the lanes that
// multiply by it, or of few bits normalised on its way to them.

#pragma once

#include "all_layers/layer_memory.cuh"
#include "common/async_copy.cuh"
#include "common/online_softmax.cuh"

__device__ __forceinline__ uint32 look_at(uint4& piece, const Element* place) {
  uint32 words[4];
  look<4>(words, place);
  piece = make_uint4(words[0], words[1], words[2], words[3]);
  return max(max(words[0], words[1]), max(words[2], words[3]));
}

#if LAYER_KIND
#include "all_layers/few_bits_inputs.cuh"
#else
#include "all_layers/layer_norms.cuh"
#include "all_layers/whole_inputs.cuh"
#endif
