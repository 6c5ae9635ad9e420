// What a translated kernel includes in place of CUDA's headers: the language's words, types and functions.
//
// Only what kernels here use is there. What is missing does not compile: add it to the header that it belongs to.

#pragma once

#include "halves.h"
#include "memory_functions.h"
#include "numbers.h"
#include "operands.h"
#include "vectors.h"
#include "warp_functions.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __constant__ static const
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) alignas(bytes)

#define threadIdx (emulator::here->thread)
#define blockIdx (emulator::here->block)
#define blockDim (emulator::here->block_size)
#define gridDim (emulator::here->grid_size)
#define warpSize 32

// g++ checks them in functions that nobody calls too, NVRTC does not; and NVRTC has the last word.
#define static_assert(...) static_assert(true)
