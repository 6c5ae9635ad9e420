// cp.async and cp.async.bulk.

#include <string.h>

#include "failure.h"
#include "grid.h"
#include "mbarriers.h"
#include "ptx.h"

namespace emulator {
namespace {

constexpr uint32_t PIECE = 16;

void check_bulk(uint32_t bytes, uint64_t from) {
  if (bytes % PIECE || from % PIECE) fail("a bulk copy of what is not in pieces of 16 bytes");
}

// NOTE: a copy may land when no thread runs that a fault could be told of; so who begins it looks at what is read.
void touch(const char* from, uint32_t bytes) {
  constexpr uint32_t PAGE = 4096;
  const volatile char* const last = from + bytes - 1;
  for (const volatile char* at = from; at < last; at += PAGE) (void)*at;
  (void)*last;
}

// Into the thread block of rank `rank`, at the offset of `address`.
uint32_t in_rank(uint32_t address, uint32_t rank) { return (address & OFFSET_MASK) | rank << RANK_SHIFT; }

void land_bulk(uint32_t to, const char* from, uint32_t bytes, uint32_t barrier) {
  memcpy(at_shared(to, bytes, PIECE, "a bulk copy"), from, bytes);
  complete_bytes(barrier, bytes);
}

}  // namespace

// [to], [from], 16, bytes that are read: the others become zeros
void copy_16_bytes(const Arguments& arguments) {
  const uint32_t bytes = arguments.count() > 2 ? arguments.word(2) : PIECE;
  char* to = at_shared(arguments.word(0), PIECE, PIECE, "cp.async");
  if (bytes && arguments.bits(1) % PIECE) fail("cp.async from an address that is not a multiple of 16");
  if (bytes) touch(arguments.address(1), bytes);
  current->copies.add({to, arguments.address(1), bytes, PIECE - bytes});
}

void close_copies(const Arguments&) { current->copies.close_group(); }

void wait_for_copies(const Arguments& arguments) {
  if (arguments.count() == 0) {
    current->copies.land_all();
  } else {
    current->copies.land_until(arguments.word(0));
  }
}

// The thread arrives at an mbarrier when all its copies so far have landed, not before it did so last time.
void arrive_behind_copies(const Arguments& arguments) {
  const uint32_t barrier = arguments.word(0);
  const std::vector<AsyncCopies::Copy> copies = current->copies.take_all();
  Landings& landings = launch_now->landings;
  landings.add(
      [=] {
        AsyncCopies::land(copies);
        arrive_at_mbarrier(barrier);
      },
      current->last_landing);
  current->last_landing = landings.last_due();
}

// [to], [from], bytes, [mbarrier], and with .multicast the ranks that get it
void copy_bulk_from_global(const Arguments& arguments) {
  const uint32_t to = arguments.word(0), bytes = arguments.word(2), barrier = arguments.word(3);
  const char* from = arguments.address(1);
  check_bulk(bytes, arguments.bits(1));
  at_shared(to, bytes, PIECE, "a bulk copy");
  if (bytes) touch(from, bytes);
  if (!arguments.has(".multicast")) {
    launch_now->landings.add([=] { land_bulk(to, from, bytes, barrier); });
    return;
  }
  const uint32_t ranks = arguments.word(4) & 0xffff;
  for (uint32_t rank = 0; rank < 16; rank++) {
    if (!(ranks >> rank & 1)) continue;
    launch_now->landings.add([=] { land_bulk(in_rank(to, rank), from, bytes, in_rank(barrier, rank)); });
  }
}

// [to], [from], bytes, [mbarrier]: into another thread block of the cluster
void copy_bulk_from_shared(const Arguments& arguments) {
  const uint32_t to = arguments.word(0), from = arguments.word(1), bytes = arguments.word(2);
  const uint32_t barrier = arguments.word(3);
  check_bulk(bytes, from);
  at_shared(to, bytes, PIECE, "a bulk copy");
  launch_now->landings.add([=] { land_bulk(to, at_shared(from, bytes, PIECE, "a bulk copy"), bytes, barrier); });
}

}  // namespace emulator
