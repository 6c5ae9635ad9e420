// Fibers: functions with a stack of their own that are left in the middle and taken up again. Knows nothing of
// CUDA.
//
// For x86-64 and the System V calling convention alone.

#pragma once

namespace emulator {

class Fiber {
 public:
  Fiber(void (*body)(void*), void* argument);
  ~Fiber();  // wherever the body stands; what it holds on its stack is lost
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();  // until the body leaves or ends
  bool done() const { return done_; }
  bool has_overflowed() const;  // it wrote beyond its stack, over that of another one

  // By the body of the fiber that runs: back to where it was resumed.
  static void leave();
  static bool is_running();

 private:
  static void begin();

  void (*body_)(void*);
  void* argument_;
  char* stack_;
  void* stack_pointer_;
  bool done_ = false;
};

}  // namespace emulator
