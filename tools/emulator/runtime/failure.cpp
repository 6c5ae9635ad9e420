#include "failure.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#include "grid.h"

namespace emulator {
namespace {

std::string failure_text;
void* bad_address;
struct sigaction previous_segv, previous_bus;
std::vector<char> signal_stack(64 << 10);
stack_t previous_stack;

std::string text_of(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

std::string text_of(const Thread& thread) {
  return "thread block " + text_of(thread.place.block) + ", thread " + text_of(thread.place.thread) + ", warp " +
         std::to_string(thread.warp) + ", lane " + std::to_string(thread.place.lane) +
         (thread.site.line ? ", last seen at " + text_of(thread.site) : "");
}

[[noreturn]] void fail_for_memory() {
  const bool is_shared = current->block.memory.is_close_behind(bad_address);
  fail(is_shared ? "memory behind the end of shared memory is touched" : "memory that is not there is touched");
}

// The thread goes on in `fail_for_memory`, on its own stack.
void handle_bad_access(int number, siginfo_t* info, void* context) {
  if (!Fiber::is_running()) {
    sigaction(number, number == SIGBUS ? &previous_bus : &previous_segv, nullptr);
    return;  // what was tried is tried again
  }
  bad_address = info->si_addr;
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RSP] = ((registers[REG_RSP] - 256) & ~static_cast<greg_t>(15)) - 8;  // as after a call
  registers[REG_RIP] = reinterpret_cast<greg_t>(&fail_for_memory);
}

}  // namespace

std::string text_of(Site site) {
  const char* name = strrchr(site.file, '/');
  return std::string(name ? name + 1 : site.file) + ":" + std::to_string(site.line);
}

void fail(const std::string& why) {
  const std::string text = current ? why + ": " + text_of(*current) : why;
  if (!Fiber::is_running()) throw Failure(text);
  failure_text = text;
  for (;;) Fiber::leave();
}

void fail(const char* why) { fail(std::string(why)); }

void throw_if_failed() {
  if (failure_text.empty()) return;
  throw Failure(std::exchange(failure_text, std::string()));
}

MemoryGuard::MemoryGuard() {
  const stack_t stack = {signal_stack.data(), 0, signal_stack.size()};
  sigaltstack(&stack, &previous_stack);
  struct sigaction action = {};
  action.sa_sigaction = handle_bad_access;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

MemoryGuard::~MemoryGuard() {
  sigaction(SIGSEGV, &previous_segv, nullptr);
  sigaction(SIGBUS, &previous_bus, nullptr);
  sigaltstack(&previous_stack, nullptr);
}

}  // namespace emulator
