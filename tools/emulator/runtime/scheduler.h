// Lets threads run until all have ended: warp by warp in rounds, in an order that the seed decides.

#pragma once

#include <memory>
#include <vector>

#include "grid.h"

namespace emulator {

// These thread blocks run at the same time. Throws a Failure.
void run_together(std::vector<std::unique_ptr<ThreadBlock>>& blocks);

}  // namespace emulator
