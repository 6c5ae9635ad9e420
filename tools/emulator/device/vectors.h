// CUDA's vector types, those that kernels here use, aligned as on a GPU.

#pragma once

#include <stdint.h>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

#define EMULATED_VECTORS(name, element)                                                            \
  struct alignas(2 * sizeof(element)) name##2 { element x, y; };                                   \
  struct alignas(sizeof(element) == 8 ? 16 : 4 * sizeof(element)) name##4 { element x, y, z, w; }; \
  constexpr name##2 make_##name##2(element x, element y) { return {x, y}; }                        \
  constexpr name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }

EMULATED_VECTORS(char, signed char)
EMULATED_VECTORS(uchar, unsigned char)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(ushort, unsigned short)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(uint, unsigned)
EMULATED_VECTORS(longlong, long long)
EMULATED_VECTORS(ulonglong, unsigned long long)
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
