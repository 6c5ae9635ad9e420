// cp.async, cp.async.bulk and cp.async.bulk.tensor.

#include <string.h>

#include <algorithm>

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

// A tensor map as tools/emulator/tensor_map.py writes it.
struct TensorMap {
  char* matrix;
  uint64_t num_columns, num_rows, row_bytes, tile_columns, tile_rows, element_bytes;

  static TensorMap at(const Arguments& arguments, size_t operand) {
    TensorMap map;
    if (arguments.bits(operand) % 64) fail("a tensor map at an address that is not a multiple of 64");
    memcpy(&map, arguments.address(operand), sizeof(map));
    return map;
  }

  uint32_t width() const { return static_cast<uint32_t>(tile_columns * element_bytes); }
  uint32_t bytes() const { return static_cast<uint32_t>(tile_rows) * width(); }

  // Where a piece of a tile is in shared memory: it changes places within 128 bytes, or 64.
  uint32_t place(uint32_t offset) const { return offset ^ (offset >> 3 & (width() - PIECE)); }

  // Bytes of the piece that are in the matrix, and where they are.
  uint32_t inside(int column, int row, uint32_t offset, char** where) const {
    const int64_t at_row = row + offset / width(), at = column * element_bytes + offset % width();
    const int64_t left = static_cast<int64_t>(num_columns * element_bytes) - at;
    *where = matrix + at_row * static_cast<int64_t>(row_bytes) + at;
    if (at_row >= static_cast<int64_t>(num_rows)) return 0;
    return static_cast<uint32_t>(std::max<int64_t>(0, std::min<int64_t>(PIECE, left)));
  }

  // What lies beside the matrix becomes zeros.
  std::vector<char> tile(int column, int row) const {
    std::vector<char> result(bytes());
    for (uint32_t at = 0; at < bytes(); at += PIECE) {
      char* from;
      const uint32_t count = inside(column, row, at, &from);
      if (count) memcpy(&result[at], from, count);
    }
    return result;
  }

  void check(int column, int row) const {
    if (column < 0 || row < 0) fail("a tile that begins before its matrix");
    if (width() != 128 && width() != 64) fail("tiles have rows of 64 or 128 bytes here");
  }
};

void land_tile(uint32_t to, const TensorMap& map, const std::vector<char>& tile, uint32_t barrier) {
  char* memory = at_shared(to, tile.size(), 8 * map.width(), "a tile");
  for (uint32_t at = 0; at < tile.size(); at += PIECE) memcpy(memory + map.place(at), &tile[at], PIECE);
  complete_bytes(barrier, static_cast<uint32_t>(tile.size()));
}

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

// [to], [map, {column, row}], [mbarrier], and with .multicast the ranks that get it
void copy_tile(const Arguments& arguments) {
  const uint32_t to = arguments.word(0), barrier = arguments.word(4);
  const TensorMap map = TensorMap::at(arguments, 1);
  const int column = static_cast<int>(arguments.word(2)), row = static_cast<int>(arguments.word(3));
  map.check(column, row);
  const std::vector<char> tile = map.tile(column, row);  // read now, so that a fault has its thread
  at_shared(to, tile.size(), 8 * map.width(), "a tile");
  if (!arguments.has(".multicast")) {
    launch_now->landings.add([=] { land_tile(to, map, tile, barrier); });
    return;
  }
  const uint32_t ranks = arguments.word(5) & 0xffff;
  for (uint32_t rank = 0; rank < 16; rank++) {
    if (!(ranks >> rank & 1)) continue;
    launch_now->landings.add([=] { land_tile(in_rank(to, rank), map, tile, in_rank(barrier, rank)); });
  }
}

// [map, {column, row}], [from]
void store_tile(const Arguments& arguments) {
  const TensorMap map = TensorMap::at(arguments, 0);
  const int column = static_cast<int>(arguments.word(1)), row = static_cast<int>(arguments.word(2));
  map.check(column, row);
  const char* memory = at_shared(arguments.word(3), map.bytes(), 8 * map.width(), "a tile");
  for (uint32_t at = 0; at < map.bytes(); at += PIECE) {
    char* to;
    const uint32_t count = map.inside(column, row, at, &to);
    if (count) current->stores.add({to, memory + map.place(at), count, 0});
  }
}

void close_stores(const Arguments&) { current->stores.close_group(); }

void wait_for_stores(const Arguments& arguments) {
  current->stores.land_until(arguments.count() ? arguments.word(0) : 0);
}

}  // namespace emulator
