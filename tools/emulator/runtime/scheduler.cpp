#include "scheduler.h"

#include <algorithm>
#include <map>
#include <string>

#include "failure.h"

namespace emulator {
namespace {

constexpr uint32_t LONGEST_SLEEP = 60;           // rounds that a warp stays behind
constexpr uint64_t MOST_ROUNDS_POLLING = 20000;  // in which threads look for what never comes

// Seed 0: in order and all at the same speed.
bool is_random() { return launch_now->shape.seed != 0; }

struct WarpRun {
  ThreadBlock& block;
  unsigned first, count;  // threads
  Warp& warp;
};

std::vector<WarpRun> warps_of(std::vector<std::unique_ptr<ThreadBlock>>& blocks) {
  std::vector<WarpRun> warps;
  for (auto& block : blocks) {
    const unsigned num_threads = static_cast<unsigned>(block->threads.size());
    for (unsigned w = 0; w < block->warps.size(); w++) {
      const unsigned first = w * WARP_SIZE, count = std::min<unsigned>(WARP_SIZE, num_threads - first);
      warps.push_back({*block, first, count, block->warps[w]});
    }
  }
  return warps;
}

void run_until_it_stops(Thread& thread) {
  current = &thread;
  here = &thread.place;
  thread.fiber.resume();
  if (thread.fiber.done() && thread.fiber.has_overflowed())
    throw Failure("a thread needs more than 256 KiB of stack");
  throw_if_failed();
  current = nullptr;
}

enum class Progress { NONE, POLLING, REAL };

// Lanes need not run side by side, unless something makes them meet: some do, the others much later.
bool are_apart() { return is_random() && launch_now->chance.one_in(16); }

// A step of the lanes that are not waiting: of all of them, as a rule.
Progress run_warp(WarpRun& run) {
  const unsigned first = is_random() ? launch_now->chance.below(run.count) : 0;
  const unsigned count = are_apart() ? 1 + launch_now->chance.below(run.count) : run.count;
  Progress progress = count < run.count ? Progress::POLLING : Progress::NONE;
  if (count < run.count) run.warp.sleeps_until = launch_now->round + launch_now->chance.below(LONGEST_SLEEP);
  for (unsigned i = 0; i < count; i++) {
    Thread& thread = *run.block.threads[run.first + (first + i) % run.count];
    if (thread.fiber.done() || !thread.wait.is_over()) continue;
    thread.polls = false;
    run_until_it_stops(thread);
    progress = std::max(progress, thread.polls ? Progress::POLLING : Progress::REAL);
  }
  return progress;
}

// Some warps are slow: whoever does not wait for them finds out.
bool stays_behind(Warp& warp) {
  Chance& chance = launch_now->chance;
  if (warp.sleeps_until > launch_now->round) return true;
  if (!is_random() || !chance.one_in(32)) return false;
  warp.sleeps_until = launch_now->round + chance.below(LONGEST_SLEEP);
  return warp.sleeps_until > launch_now->round;
}

Progress run_round(std::vector<WarpRun*>& order) {
  Chance& chance = launch_now->chance;
  if (is_random()) {
    for (uint32_t i = static_cast<uint32_t>(order.size()); i > 1; i--)
      std::swap(order[i - 1], order[chance.below(i)]);
  }
  Progress progress = launch_now->landings.run_due() ? Progress::REAL : Progress::NONE;
  if (!launch_now->landings.empty()) progress = Progress::REAL;
  for (WarpRun* run : order) {
    progress = std::max(progress, stays_behind(run->warp) ? Progress::POLLING : run_warp(*run));
  }
  return progress;
}

bool any_live(const std::vector<std::unique_ptr<ThreadBlock>>& blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [](const auto& block) { return block->live > 0; });
}

// "96 threads wait for __syncthreads (add_norm.cu:24)", a line for each thread block and place.
std::string waiting_text(const std::vector<std::unique_ptr<ThreadBlock>>& blocks) {
  std::string text;
  for (const auto& block : blocks) {
    std::map<std::string, int> counts;
    for (const auto& thread : block->threads) {
      if (thread->fiber.done()) continue;
      const char* what = thread->wait.word ? thread->wait.what : "something in memory";
      counts[std::string(what) + " (" + text_of(thread->site) + ")"]++;
    }
    const std::string name = std::to_string(block->index.x) + ", " + std::to_string(block->index.y) + ", " +
                             std::to_string(block->index.z);
    for (const auto& [what, count] : counts) {
      text += "\n  thread block (" + name + "): " + std::to_string(count) + " threads wait for " + what;
    }
  }
  return text;
}

}  // namespace

void run_together(std::vector<std::unique_ptr<ThreadBlock>>& blocks) {
  std::vector<WarpRun> warps = warps_of(blocks);
  std::vector<WarpRun*> order;
  for (WarpRun& warp : warps) order.push_back(&warp);
  uint64_t last_progress = launch_now->round;
  while (any_live(blocks)) {
    const Progress progress = run_round(order);
    const uint64_t round = launch_now->round++;
    if (progress == Progress::REAL) last_progress = round;
    if (progress == Progress::NONE || round - last_progress > MOST_ROUNDS_POLLING) {
      throw Failure("deadlock, no thread can go on:" + waiting_text(blocks));
    }
  }
  if (!launch_now->landings.empty()) {
    launch_now->landings.run_all();
    throw Failure("a thread block ends while copies to it are under way");
  }
}

}  // namespace emulator
