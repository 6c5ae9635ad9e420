// Atomic functions, loads and stores with hints, fences. Every access is atomic and in order here; fences do
// nothing.

#pragma once

#include <atomic>

#include "api.h"

// Others may come first, as on a GPU: the order in which threads arrive is what atomic functions are about.
template <typename T, typename Change>
inline T emulated_atomic(T* place, Change change) {
  emulator::maybe_pause();
  const T old = *place;
  *place = change(old);
  return old;
}

template <typename T, typename U>
inline T atomicAdd(T* place, U value) {
  return emulated_atomic(place, [=](T old) { return static_cast<T>(old + value); });
}
template <typename T, typename U>
inline T atomicMax(T* place, U value) {
  return emulated_atomic(place, [=](T old) { return old < static_cast<T>(value) ? static_cast<T>(value) : old; });
}
template <typename T, typename U>
inline T atomicMin(T* place, U value) {
  return emulated_atomic(place, [=](T old) { return static_cast<T>(value) < old ? static_cast<T>(value) : old; });
}
template <typename T, typename U>
inline T atomicExch(T* place, U value) {
  return emulated_atomic(place, [=](T) { return static_cast<T>(value); });
}
inline unsigned atomicInc(unsigned* place, unsigned top) {
  return emulated_atomic(place, [=](unsigned old) { return old >= top ? 0 : old + 1; });
}

template <typename T>
inline T __ldg(const T* place) {
  return *place;
}
template <typename T>
inline T __ldcg(const T* place) {
  return *place;
}
template <typename T>
inline T __ldcs(const T* place) {
  return *place;
}
template <typename T, typename U>
inline void __stcg(T* place, U value) {
  *place = value;
}
template <typename T, typename U>
inline void __stcs(T* place, U value) {
  *place = value;
}

inline void __threadfence() {}
inline void __threadfence_block() {}
// Time goes on by itself: who paused would wait for others, who may all look at what it is to bring.
inline void __nanosleep(unsigned) {}
// A clock that runs quickly enough for nobody to wait long.
inline long long clock64() {
  static std::atomic<long long> now{0};
  return now += 1000;
}
[[noreturn]] inline void __trap() { emulator::fail("__trap"); }

inline size_t __cvta_generic_to_shared(const void* pointer) { return emulator::shared_address(pointer); }
