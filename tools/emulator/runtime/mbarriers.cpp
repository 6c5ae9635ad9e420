#include "mbarriers.h"

#include "failure.h"
#include "grid.h"

namespace emulator {
namespace {

// Ours; hardware does not say how it keeps these.
struct Mbarrier {
  int16_t missing, arrivals;
  uint32_t bytes_and_parity;  // bytes that are still to come, times 2, and the parity of the phase

  uint32_t parity() const { return bytes_and_parity & 1; }
};
static_assert(sizeof(Mbarrier) == 8, "an mbarrier has 64 bits");

constexpr int MOST_BYTES = (1 << 20) - 1;

Mbarrier& mbarrier_at(uint32_t address) {
  Mbarrier& barrier = *reinterpret_cast<Mbarrier*>(at_shared(address, sizeof(Mbarrier), 8, "an mbarrier"));
  if (barrier.arrivals <= 0) fail("an mbarrier that was not initialised");
  return barrier;
}

void add_bytes(Mbarrier& barrier, int more) {
  int bytes = (static_cast<int32_t>(barrier.bytes_and_parity) >> 1) + more;
  if (bytes > MOST_BYTES || bytes < -MOST_BYTES) fail("an mbarrier counts up to 2^20 - 1 bytes");
  uint32_t parity = barrier.parity();
  if (barrier.missing == 0 && bytes == 0) {
    barrier.missing = barrier.arrivals;
    parity ^= 1;
  }
  barrier.bytes_and_parity = static_cast<uint32_t>(bytes) << 1 | parity;
}

}  // namespace

void init_mbarrier(uint32_t address, uint32_t arrivals) {
  if (arrivals == 0 || arrivals > 0x7fff) fail("an mbarrier for no arrivals, or more than are counted here");
  char* place = at_shared(address, sizeof(Mbarrier), 8, "an mbarrier");
  const int16_t count = static_cast<int16_t>(arrivals);
  *reinterpret_cast<Mbarrier*>(place) = {count, count, 0};
}

void arrive_at_mbarrier(uint32_t address, uint32_t expected_bytes) {
  Mbarrier& barrier = mbarrier_at(address);
  if (barrier.missing == 0) fail("more arrivals at an mbarrier than its phase has");
  if (expected_bytes) barrier.bytes_and_parity += expected_bytes << 1;
  barrier.missing--;
  add_bytes(barrier, 0);
}

void expect_bytes(uint32_t address, uint32_t bytes) { mbarrier_at(address).bytes_and_parity += bytes << 1; }

void complete_bytes(uint32_t address, uint32_t bytes) { add_bytes(mbarrier_at(address), -static_cast<int>(bytes)); }

bool phase_has_ended(uint32_t address, uint32_t parity) { return mbarrier_at(address).parity() != parity; }

void wait_for_phase(uint32_t address, uint32_t parity) {
  const Mbarrier& barrier = mbarrier_at(address);
  wait_for_change(&barrier.bytes_and_parity, 1, parity, "an mbarrier");
}

}  // namespace emulator
