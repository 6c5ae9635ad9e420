#include "instruction.h"

#include <ctype.h>

#include "failure.h"
#include "grid.h"

namespace emulator {
namespace {

std::string without_blanks(const char* text) {
  std::string result;
  for (; *text; text++) {
    if (!isspace(static_cast<unsigned char>(*text))) result += *text;
  }
  return result;
}

// "{.reg.predp;setp..." begins what has registers of its own.
std::string without_declarations(std::string text) {
  if (text.rfind("{", 0) == 0) text.erase(0, 1);
  while (text.rfind(".reg", 0) == 0) text.erase(0, text.find(';') + 1);
  return text;
}

// "%12" becomes "%", and 12 goes into `order`; "%%tid" becomes "%tid".
void take_operands(Instruction& instruction, const std::string& text) {
  for (size_t i = 0; i < text.size(); i++) {
    instruction.text += text[i];
    if (text[i] != '%' || i + 1 == text.size()) continue;
    if (text[i + 1] == '%') {
      i++;
    } else if (isdigit(static_cast<unsigned char>(text[i + 1]))) {
      size_t used = 0;
      instruction.order.push_back(std::stoul(text.substr(i + 1), &used));
      i += used;
    }
  }
}

}  // namespace

const Instruction* instruction(const char* text, Site site) {
  Instruction* result = new Instruction{site, "", {}, nullptr};
  take_operands(*result, without_declarations(without_blanks(text)));
  result->run = find_run(result->text);
  return result;
}

void execute(const Instruction* instruction, std::initializer_list<Operand> operands) {
  current->site = instruction->site;
  if (!instruction->run) fail("the emulator does not know this PTX: " + instruction->text);
  instruction->run(Arguments(*instruction, operands));
}

size_t vector_length(const Arguments& arguments) {
  return arguments.has(".v4.") ? 4 : arguments.has(".v2.") ? 2 : 1;
}

}  // namespace emulator
