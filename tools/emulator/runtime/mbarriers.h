// Barriers in shared memory (mbarrier): a phase ends when all have arrived and all expected bytes have come.

#pragma once

#include <stdint.h>

namespace emulator {

void init_mbarrier(uint32_t address, uint32_t arrivals);
void arrive_at_mbarrier(uint32_t address, uint32_t expected_bytes = 0);
void expect_bytes(uint32_t address, uint32_t bytes);  // and arrives nowhere
void complete_bytes(uint32_t address, uint32_t bytes);
bool phase_has_ended(uint32_t address, uint32_t parity);
void wait_for_phase(uint32_t address, uint32_t parity);

}  // namespace emulator
