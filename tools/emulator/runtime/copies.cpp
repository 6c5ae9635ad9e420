#include "copies.h"

#include <string.h>

#include "grid.h"

namespace emulator {

constexpr uint32_t MOST_ROUNDS = 7;  // that a bulk copy takes

// NOTE: half of them land at once. A copy may come too late for who forgets to wait, and too soon for who still
// reads what it writes over.
void AsyncCopies::add(const Copy& copy) {
  if (launch_now->chance.one_in(2)) {
    land({copy});
  } else {
    open_.push_back(copy);
  }
}

void AsyncCopies::close_group() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void AsyncCopies::land_until(size_t num_left) {
  for (; groups_.size() > num_left; groups_.pop_front()) land(groups_.front());
}

void AsyncCopies::land_all() {
  close_group();
  land_until(0);
}

std::vector<AsyncCopies::Copy> AsyncCopies::take_all() {
  close_group();
  std::vector<Copy> all;
  for (const std::vector<Copy>& group : groups_) all.insert(all.end(), group.begin(), group.end());
  groups_.clear();
  return all;
}

void AsyncCopies::land(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.bytes) memcpy(copy.to, copy.from, copy.bytes);
    memset(copy.to + copy.bytes, 0, copy.zeros);
  }
}

void Landings::add(std::function<void()> action, uint64_t earliest) {
  const uint64_t soon = launch_now->round + launch_now->chance.below(MOST_ROUNDS);
  last_due_ = soon > earliest ? soon : earliest;
  waiting_.push_back({last_due_, current, std::move(action)});
}

bool Landings::run_due() {
  bool any = false;
  for (size_t i = 0; i < waiting_.size();) {
    if (waiting_[i].due > launch_now->round) {
      i++;
      continue;
    }
    const Landing landing = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    current = landing.thread;  // addresses of shared memory are those of its thread block
    landing.action();
    any = true;
  }
  current = nullptr;
  return any;
}

void Landings::run_all() {
  for (; !waiting_.empty(); launch_now->round++) run_due();
}

}  // namespace emulator
