// mbarriers, named barriers and the barrier of a cluster, as PTX has them.

#include "barriers.h"
#include "grid.h"
#include "mbarriers.h"
#include "ptx.h"

namespace emulator {

void initialise_mbarrier(const Arguments& arguments) { init_mbarrier(arguments.word(0), arguments.word(1)); }

void arrive_expecting_bytes(const Arguments& arguments) {
  arrive_at_mbarrier(arguments.word(0), arguments.word(1));
}

void expect_bytes_alone(const Arguments& arguments) { expect_bytes(arguments.word(0), arguments.word(1)); }

void arrive(const Arguments& arguments) { arrive_at_mbarrier(arguments.word(0)); }

// [mbarrier], parity, and where it says whether the phase has ended: here it always has
void try_phase(const Arguments& arguments) {
  wait_for_phase(arguments.word(0), arguments.word(1));
  arguments.put(2, 1);
}

void test_phase(const Arguments& arguments) {
  maybe_pause();
  arguments.put(2, phase_has_ended(arguments.word(0), arguments.word(1)));
}

void sync_named(const Arguments& arguments) { arrive_at_named(arguments.word(0), arguments.word(1), true); }

void arrive_named(const Arguments& arguments) { arrive_at_named(arguments.word(0), arguments.word(1), false); }

void arrive_in_cluster(const Arguments&) { arrive_at_cluster(); }

void wait_in_cluster(const Arguments&) { wait_for_cluster(); }

}  // namespace emulator
