// Copies that run beside the computation. Both kinds land late: what is read too soon is not there yet.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include <deque>
#include <functional>
#include <vector>

namespace emulator {

struct Thread;

// A thread's own copies in groups, cp.async or bulk copies to global memory, which land at the latest when the
// thread waits for them.
class AsyncCopies {
 public:
  // `bytes` from global memory, then zeros.
  struct Copy {
    char* to;
    const char* from;
    size_t bytes, zeros;
  };

  void add(const Copy& copy);
  void close_group();
  void land_until(size_t num_left);  // groups, the oldest first
  void land_all();
  std::vector<Copy> take_all();  // somebody else lands them

  static void land(const std::vector<Copy>& copies);

 private:
  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
};

// Bulk copies and whatever else happens some rounds later, on behalf of the thread that asked for it.
class Landings {
 public:
  void add(std::function<void()> action, uint64_t earliest = 0);
  uint64_t last_due() const { return last_due_; }
  bool run_due();  // whether there were any
  bool empty() const { return waiting_.empty(); }
  void run_all();

 private:
  struct Landing {
    uint64_t due;  // a round
    Thread* thread;
    std::function<void()> action;
  };

  std::vector<Landing> waiting_;
  uint64_t last_due_ = 0;
};

}  // namespace emulator
