// Loads, stores and sums in global and shared memory, also in that of other thread blocks of the cluster.

#include <string.h>

#include "failure.h"
#include "grid.h"
#include "mbarriers.h"
#include "ptx.h"

namespace emulator {
namespace {

// Operand `i` is an address of what the text says.
char* memory_at(const Arguments& arguments, size_t i, size_t bytes, const char* what) {
  if (arguments.has(".shared")) return at_shared(arguments.word(i), bytes, bytes, what);
  char* address = arguments.address(i);
  if (reinterpret_cast<uintptr_t>(address) % bytes) {
    fail(std::string(what) + " at an address that is not a multiple of " + std::to_string(bytes));
  }
  return address;
}

}  // namespace

// Whoever reads what others write meanwhile looks again and again: others get their turn.
void load(const Arguments& arguments) {
  if (arguments.has(".relaxed") || arguments.has(".acquire") || arguments.has(".volatile")) maybe_pause();
  const size_t length = vector_length(arguments), bytes = arguments.bytes(0);
  const char* from = memory_at(arguments, length, length * bytes, "a load");
  for (size_t i = 0; i < length; i++) memcpy(arguments.place<void>(i), from + i * bytes, bytes);
}

void store(const Arguments& arguments) {
  const size_t length = vector_length(arguments), bytes = arguments.bytes(1);
  char* to = memory_at(arguments, 0, length * bytes, "a store");
  for (size_t i = 0; i < length; i++) memcpy(to + i * bytes, &arguments.bits(1 + i), bytes);
}

// [to], {values}, [mbarrier]
void store_async(const Arguments& arguments) {
  const size_t length = vector_length(arguments), bytes = arguments.bytes(1);
  const uint32_t to = arguments.word(0), barrier = arguments.word(1 + length);
  at_shared(to, length * bytes, length * bytes, "a store");
  std::vector<char> values(length * bytes);
  for (size_t i = 0; i < length; i++) memcpy(&values[i * bytes], &arguments.bits(1 + i), bytes);
  launch_now->landings.add([=] {
    memcpy(at_shared(to, values.size(), values.size(), "a store"), values.data(), values.size());
    complete_bytes(barrier, static_cast<uint32_t>(values.size()));
  });
}

// red [to], value; atom old, [to], value
void add_in_memory(const Arguments& arguments) {
  maybe_pause();
  const bool returns = arguments.instruction().text[0] == 'a';
  const size_t to = returns ? 1 : 0;
  uint32_t* place = reinterpret_cast<uint32_t*>(memory_at(arguments, to, 4, "an atomic sum"));
  const uint32_t old = *place;
  if (arguments.has(".add.f32")) {
    *place = bits_of(float_of(old) + arguments.number(to + 1));
  } else if (arguments.has(".add.u32") || arguments.has(".add.s32")) {
    *place = old + arguments.word(to + 1);
  } else if (arguments.has(".inc.u32")) {
    *place = old >= arguments.word(to + 1) ? 0 : old + 1;
  } else {
    fail("the emulator does not know this PTX: " + arguments.instruction().text);
  }
  if (returns) arguments.put(0, old);
}

void map_address(const Arguments& arguments) {
  arguments.put(0, (arguments.word(1) & OFFSET_MASK) | arguments.word(2) << RANK_SHIFT);
}

}  // namespace emulator
