// Functions in which threads meet. All take their place in the kernel by themselves, so that errors name it.

#pragma once

#include "api.h"

#define EMULATED_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMULATED_SITE) { emulator::sync_thread_block(false, {file, line}); }
inline int __syncthreads_count(bool vote, EMULATED_SITE) { return emulator::sync_thread_block(vote, {file, line}); }
inline int __syncthreads_or(bool vote, EMULATED_SITE) {
  return emulator::sync_thread_block(vote, {file, line}) > 0;
}
inline int __syncthreads_and(bool vote, EMULATED_SITE) {
  return emulator::sync_thread_block(!vote, {file, line}) == 0;
}

inline void __syncwarp(uint32_t mask = 0xffffffffu, EMULATED_SITE) {
  emulator::vote_of_warp(mask, false, {file, line});
}
inline uint32_t __ballot_sync(uint32_t mask, bool vote, EMULATED_SITE) {
  return emulator::vote_of_warp(mask, vote, {file, line});
}
inline int __any_sync(uint32_t mask, bool vote, EMULATED_SITE) {
  return emulator::vote_of_warp(mask, vote, {file, line}) != 0;
}

inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value, EMULATED_SITE) {
  for (int bits = 16; bits > 0; bits /= 2) {
    uint32_t other = value;
    emulator::shuffle(mask, &other, sizeof(other), emulator::here->lane ^ bits, {file, line});
    value += other;
  }
  return value;
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value, EMULATED_SITE) {
  for (int bits = 16; bits > 0; bits /= 2) {
    uint32_t other = value;
    emulator::shuffle(mask, &other, sizeof(other), emulator::here->lane ^ bits, {file, line});
    value = value < other ? other : value;
  }
  return value;
}

// Lanes are taken in runs of `width`, a power of two.
template <typename T>
inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32, EMULATED_SITE) {
  const int lane = emulator::here->lane;
  emulator::shuffle(mask, &value, sizeof(T), (lane & ~(width - 1)) | (source & (width - 1)), {file, line});
  return value;
}
template <typename T>
inline T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32, EMULATED_SITE) {
  const int lane = emulator::here->lane, end = (lane & ~(width - 1)) + width;
  emulator::shuffle(mask, &value, sizeof(T), (lane ^ bits) < end ? lane ^ bits : lane, {file, line});
  return value;
}
template <typename T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32, EMULATED_SITE) {
  const int lane = emulator::here->lane, source = lane - static_cast<int>(delta);
  emulator::shuffle(mask, &value, sizeof(T), source < (lane & ~(width - 1)) ? lane : source, {file, line});
  return value;
}
template <typename T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32, EMULATED_SITE) {
  const int lane = emulator::here->lane, source = lane + static_cast<int>(delta);
  emulator::shuffle(mask, &value, sizeof(T), source > (lane | (width - 1)) ? lane : source, {file, line});
  return value;
}
