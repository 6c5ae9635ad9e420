#include "wgmma.h"

#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "grid.h"
#include "ptx.h"

namespace emulator {
namespace {

Warpgroup& own_warpgroup() {
  auto& place = current->block.warpgroups[current->index / WARPGROUP_SIZE];
  if (!place) {
    if (current->block.threads.size() < (current->index / WARPGROUP_SIZE + 1) * WARPGROUP_SIZE) {
      fail("a warpgroup has four warps");
    }
    place = std::make_unique<Warpgroup>();
    place->shares.resize(WARPGROUP_SIZE);
  }
  return *place;
}

// All 128 threads come here; the last one does what there is to do.
template <typename Action>
void meet_in_warpgroup(const char* what, Action action) {
  Warpgroup& group = own_warpgroup();
  if (group.arrived == 0) group.what = what;
  if (strcmp(group.what, what) != 0)
    fail(std::string("threads of a warpgroup are at ") + group.what + " and " + what);
  const uint32_t generation = group.generation;
  if (++group.arrived < WARPGROUP_SIZE) {
    wait_for_change(&group.generation, ~0u, generation, what);
    return;
  }
  action(group);
  group.arrived = 0;
  group.generation++;
}

// What the text says: "...m64n128k16.f32.f16.f16{d...},a,b,p,1,1[,transposed a],transposed b;", a in registers in
// braces too; of integers "...m64n128k32.s32.s8.s8{d...},a,b,p;".
struct Shape16 {
  int columns;
  bool has_predicate, a_is_in_registers, transposed_a, transposed_b;

  explicit Shape16(const std::string& text) {
    has_predicate = text.rfind("setp", 0) == 0;
    columns = atoi(text.c_str() + text.find("m64n") + 4);
    a_is_in_registers = text.compare(text.find('}'), 3, "},{") == 0;
    const size_t found = text.find(",p,"), scales = found + 3;  // "1,1,0,0;"
    const bool can_be = found != std::string::npos;
    transposed_a = can_be && !a_is_in_registers && text[scales + 4] == '1';
    transposed_b = can_be && text[scales + (a_is_in_registers ? 4 : 6)] == '1';
  }
};

Share own_share(const Arguments& arguments, const Shape16& shape) {
  Share share = {{}, {}};
  const size_t first = shape.has_predicate ? 1 : 0, count = shape.columns / 2;
  for (size_t i = 0; i < count; i++) share.d.push_back(arguments.place<uint32_t>(first + i));
  for (size_t i = 0; i < 4 && shape.a_is_in_registers; i++) share.a[i] = arguments.word(first + count + i);
  return share;
}

Product product_of(const Arguments& arguments, const Shape16& shape) {
  const Element element = arguments.has(".bf16.") ? Element::BFLOAT16 : Element::FLOAT16;
  const size_t a = (shape.has_predicate ? 1 : 0) + shape.columns / 2, b = a + (shape.a_is_in_registers ? 4 : 1);
  const bool adds = !shape.has_predicate || arguments.word(0) != 0;
  return {shape.columns,
          adds,
          shape.a_is_in_registers,
          {arguments.bits(a), shape.transposed_a, element},
          {arguments.bits(b), shape.transposed_b, element},
          {},
          arguments.has(".s8.")};
}

}  // namespace

void Warpgroup::run_until(size_t num_left) {
  for (; groups.size() > num_left; groups.pop_front()) {
    for (const Product& product : groups.front()) product.run();
  }
}

void multiply_in_warpgroup(const Arguments& arguments) {
  const Shape16 shape(arguments.instruction().text);
  own_warpgroup().shares[current->index % WARPGROUP_SIZE] = own_share(arguments, shape);
  meet_in_warpgroup("wgmma.mma_async", [&](Warpgroup& group) {
    group.open.push_back(product_of(arguments, shape));
    group.open.back().shares.swap(group.shares);
    group.shares.resize(WARPGROUP_SIZE);
  });
}

void fence_warpgroup(const Arguments&) {
  meet_in_warpgroup("wgmma.fence", [](Warpgroup&) {});
}

// NOTE: half of the groups run at once, the others when they are waited for. What is read or written over in
// between shows.
void commit_warpgroup(const Arguments&) {
  meet_in_warpgroup("wgmma.commit_group", [](Warpgroup& group) {
    group.groups.push_back(std::move(group.open));
    group.open.clear();
    if (launch_now->chance.one_in(2)) group.run_until(0);
  });
}

void wait_for_warpgroup(const Arguments& arguments) {
  const uint32_t num_left = arguments.count() ? arguments.word(0) : 0;
  meet_in_warpgroup("wgmma.wait_group", [=](Warpgroup& group) { group.run_until(num_left); });
}

}  // namespace emulator
