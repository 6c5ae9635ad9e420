// How a launch ends that cannot go on. Nothing is unwound: the threads are left where they stand.

#pragma once

#include <exception>
#include <string>

#include "../device/api.h"

namespace emulator {

// Thrown to the launch by the runtime itself.
struct Failure : std::exception {
  std::string text;

  explicit Failure(std::string text) : text(std::move(text)) {}
  const char* what() const noexcept override { return text.c_str(); }
};

// From wherever the runtime or a thread stands; names the thread.
[[noreturn]] void fail(const std::string& why);

// After a thread was left: throws if it failed.
void throw_if_failed();

// "mma.cuh:12"
std::string text_of(Site site);

// While it lives, a thread that touches memory which is not there fails instead of ending the process.
class MemoryGuard {
 public:
  MemoryGuard();
  ~MemoryGuard();
};

}  // namespace emulator
