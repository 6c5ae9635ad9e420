// Sixteen bytes as elements: what a thread moves at a time, squares of them, and where they lie in shared memory.

#pragma once

#include "common/common.cuh"

struct alignas(16) Row {
  Element elements[ROW_ELEMENTS];
};

__device__ __forceinline__ Row as_row(uint4 bytes) { return *reinterpret_cast<const Row*>(&bytes); }
__device__ __forceinline__ uint4 as_bytes(const Row& row) { return *reinterpret_cast<const uint4*>(&row); }

// A row that the kernel before has just written: past L1, which may hold what was there before.
__device__ __forceinline__ Row load_fresh_row(const Element* address) {
  return as_row(__ldcg(reinterpret_cast<const uint4*>(address)));
}

// rows[i].elements[j] becomes rows[j].elements[i]; stays in registers, as every index is a constant.
__device__ __forceinline__ void transpose(Row (&rows)[ROW_ELEMENTS]) {
#pragma unroll
  for (int i = 0; i < ROW_ELEMENTS; i++) {
#pragma unroll
    for (int j = i + 1; j < ROW_ELEMENTS; j++) {
      const Element kept = rows[i].elements[j];
      rows[i].elements[j] = rows[j].elements[i];
      rows[j].elements[i] = kept;
    }
  }
}

// Where row `index` of a tile of columns lies in shared memory. Eight rows that follow each other, or the same row
// of eight columns that do, fall into different banks; a column must be a multiple of eight rows.
__device__ __forceinline__ int swizzled(int index, int column) { return index ^ (column % 8); }
