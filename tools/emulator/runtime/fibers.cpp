#include "fibers.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <stdexcept>
#include <vector>

// Saves what a callee must, stores the stack pointer in *from and goes on from `to`.
extern "C" void emulator_switch_stacks(void** from, void* to);
asm(R"(
.text
.globl emulator_switch_stacks
.type emulator_switch_stacks, @function
emulator_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace emulator {
namespace {

constexpr size_t STACK_BYTES = 256 << 10;  // reserved; memory is taken as it is used
constexpr int SAVED_REGISTERS = 6;
constexpr size_t COLOURS = 64, COLOUR_BYTES = 192;
constexpr uint64_t UNUSED_MARK = 0x756e746f75636865;

std::vector<char*> free_stacks;
void* owner;  // stack pointer of who resumed the fiber that runs
Fiber* running;

// Where a stack begins: not in the same sets of the caches as all others.
size_t next_offset() {
  static size_t colour = 0;
  return 64 + colour++ % COLOURS * COLOUR_BYTES;
}

char* new_stack() {
  if (!free_stacks.empty()) {
    char* stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
  }
  constexpr int FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
  if (stack == MAP_FAILED) throw std::runtime_error("there is no memory for more threads");
  return static_cast<char*>(stack);
}

}  // namespace

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument), stack_(new_stack()) {
  *reinterpret_cast<uint64_t*>(stack_) = UNUSED_MARK;
  uint64_t* top = reinterpret_cast<uint64_t*>(stack_ + STACK_BYTES - next_offset());
  *--top = 0;  // as if `begin` had been called: its frame must begin 8 bytes off a multiple of 16
  *--top = reinterpret_cast<uint64_t>(&Fiber::begin);
  for (int i = 0; i < SAVED_REGISTERS; i++) *--top = 0;
  stack_pointer_ = top;
}

Fiber::~Fiber() { free_stacks.push_back(stack_); }

void Fiber::resume() {
  running = this;
  emulator_switch_stacks(&owner, stack_pointer_);
  running = nullptr;
}

bool Fiber::is_running() { return running != nullptr; }

bool Fiber::has_overflowed() const { return *reinterpret_cast<const uint64_t*>(stack_) != UNUSED_MARK; }

void Fiber::leave() { emulator_switch_stacks(&running->stack_pointer_, owner); }

void Fiber::begin() {
  running->body_(running->argument_);
  running->done_ = true;
  leave();
  abort();  // nobody resumes a fiber that is done
}

}  // namespace emulator
