// Random numbers that are the same for the same seed on every machine.

#pragma once

#include <stdint.h>

namespace emulator {

// A linear congruential generator (Knuth's MMIX constants); its upper bits are good enough to shuffle warps.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed * 7919 + 12345) {
    for (int i = 0; i < 8; i++) below(2);
  }

  uint32_t below(uint32_t end) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 33) % end;
  }

  // Once in `times`.
  bool one_in(uint32_t times) { return below(times) == 0; }

 private:
  uint64_t state_;
};

}  // namespace emulator
