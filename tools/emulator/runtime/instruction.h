// A text of PTX that is known, and its operands while it is executed.

#pragma once

#include <string>
#include <vector>

#include "../device/operands.h"
#include "elements.h"

namespace emulator {

class Arguments;
using Run = void (*)(const Arguments& arguments);

struct Instruction {
  Site site;
  std::string text;           // without blanks and declarations, every operand a "%"
  std::vector<size_t> order;  // numbers of the operands in the order of their mention
  Run run;                    // null if nobody knows the text

  bool has(const char* part) const { return text.find(part) != std::string::npos; }
};

// Operands by their place in the text: 0 is the one that is mentioned first, wherever the constraints have it.
class Arguments {
 public:
  Arguments(const Instruction& instruction, std::initializer_list<Operand> operands)
      : instruction_(instruction), operands_(operands.begin()) {}

  const Instruction& instruction() const { return instruction_; }
  bool has(const char* part) const { return instruction_.has(part); }
  size_t count() const { return instruction_.order.size(); }
  unsigned bytes(size_t i) const { return operand(i).bytes; }
  const uint64_t& bits(size_t i) const { return operand(i).bits; }
  uint32_t word(size_t i) const { return static_cast<uint32_t>(operand(i).bits); }
  float number(size_t i) const { return float_of(word(i)); }
  char* address(size_t i) const { return reinterpret_cast<char*>(operand(i).bits); }
  template <typename T>
  T* place(size_t i) const {
    return static_cast<T*>(operand(i).place);
  }
  void put(size_t i, uint64_t bits) const { memcpy(operand(i).place, &bits, operand(i).bytes); }

 private:
  const Operand& operand(size_t i) const { return operands_[instruction_.order[i]]; }

  const Instruction& instruction_;
  const Operand* operands_;
};

// 4 for ".v4", 2 for ".v2", else 1.
size_t vector_length(const Arguments& arguments);

// Who executes a text; null if nobody does.
Run find_run(const std::string& text);

}  // namespace emulator
