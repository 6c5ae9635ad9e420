// 16-bit elements of matrices, packed two in a register.

#pragma once

#include "../device/halves.h"

namespace emulator {

enum class Element { FLOAT16, BFLOAT16 };

inline float value_of(uint16_t bits, Element element) {
  return element == Element::BFLOAT16 ? bfloat_to_float(bits) : half_to_float(bits);
}

// `half` 0 is the lower one.
inline uint16_t half_of(uint32_t pair, int half) { return static_cast<uint16_t>(pair >> 16 * half); }

inline uint32_t pair_of(uint16_t low, uint16_t high) { return static_cast<uint32_t>(high) << 16 | low; }

}  // namespace emulator
