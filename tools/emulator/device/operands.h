// An `asm` statement as the translation leaves it: the text, known once, and its operands at every execution.

#pragma once

#include <initializer_list>

#include "api.h"

namespace emulator {

// Of an instruction; a pointer or whole number up to 64 bits, or a float.
struct Operand {
  void* place;  // where a result goes, null if there is none
  uint64_t bits;
  unsigned bytes;
};

struct Instruction;

// What the text says; texts that nobody knows fail when they are executed. Lives as long as the process.
const Instruction* instruction(const char* text, Site site);
void execute(const Instruction* instruction, std::initializer_list<Operand> operands);

template <typename T>
inline Operand in(const T& value) {
  static_assert(sizeof(T) <= 8, "an operand of more than 64 bits");
  Operand operand = {nullptr, 0, sizeof(T)};
  __builtin_memcpy(&operand.bits, &value, sizeof(T));
  return operand;
}
template <typename T>
inline Operand out(T& value) {
  Operand operand = in(value);
  operand.place = &value;
  return operand;
}

}  // namespace emulator
