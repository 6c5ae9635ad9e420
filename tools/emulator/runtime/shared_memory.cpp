#include "shared_memory.h"

#include <string.h>
#include <sys/mman.h>

#include <stdexcept>
#include <string>

#include "failure.h"
#include "grid.h"

namespace emulator {
namespace {

constexpr size_t SIZE = 256 << 10;   // what the 14 bits of a matrix descriptor of wgmma can say
constexpr size_t MOST = 227 << 10;   // of a thread block on sm_90
constexpr size_t GUARD = 256 << 10;  // memory behind it that nobody may touch
constexpr size_t ALIGNMENT = 1024;   // of every variable, as the largest swizzle of matrices needs it
constexpr unsigned char UNTOUCHED = 0xff;

std::vector<char*> free_areas;

size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

char* new_area() {
  if (!free_areas.empty()) {
    char* area = free_areas.back();
    free_areas.pop_back();
    return area;
  }
  void* area = mmap(nullptr, SIZE + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED || mprotect(static_cast<char*>(area) + SIZE, GUARD, PROT_NONE)) {
    throw std::runtime_error("there is no memory for more thread blocks");
  }
  return static_cast<char*>(area);
}

}  // namespace

SharedMemory::SharedMemory(size_t dynamic_bytes) : base_(new_area()), dynamic_bytes_(dynamic_bytes) {
  if (dynamic_bytes > MOST) fail("a thread block asks for more than 227 KiB of shared memory");
  dynamic_offset_ = SIZE - aligned(dynamic_bytes);
  memset(base_, UNTOUCHED, SIZE);
}

SharedMemory::~SharedMemory() { free_areas.push_back(base_); }

void* SharedMemory::variable(const void* key, size_t bytes) {
  size_t offset = ALIGNMENT;  // no variable has the address 0
  size_t total = dynamic_bytes_ + bytes;
  for (const Piece& piece : pieces_) {
    if (piece.key == key) return base_ + piece.offset;
    offset = aligned(piece.offset + piece.bytes);
    total += piece.bytes;
  }
  if (total > MOST || offset + bytes > dynamic_offset_) fail("static and dynamic shared memory exceed 227 KiB");
  pieces_.push_back({key, offset, bytes});
  return base_ + offset;
}

bool SharedMemory::contains(const void* pointer) const {
  const char* address = static_cast<const char*>(pointer);
  return address >= base_ && address <= base_ + SIZE;
}

bool SharedMemory::is_close_behind(const void* pointer) const {
  const char* address = static_cast<const char*>(pointer);
  return address >= base_ + SIZE && address < base_ + SIZE + GUARD;
}

uint32_t SharedMemory::offset_of(const void* pointer) const {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - base_);
}

bool SharedMemory::has(uint32_t offset, size_t bytes) { return offset + bytes <= SIZE; }

bool SharedMemory::is_clean_between() const {
  size_t end = 0;
  for (const Piece& piece : pieces_) {
    if (!is_untouched(end, piece.offset)) return false;
    end = piece.offset + piece.bytes;
  }
  return is_untouched(end, dynamic_offset_) && is_untouched(dynamic_offset_ + dynamic_bytes_, SIZE);
}

bool SharedMemory::is_untouched(size_t begin, size_t end) const {
  for (size_t i = begin; i < end; i++) {
    if (static_cast<unsigned char>(base_[i]) != UNTOUCHED) return false;
  }
  return true;
}

char* at_shared(uint32_t address, size_t bytes, size_t alignment, const char* what) {
  const uint32_t rank = address >> RANK_SHIFT, offset = address & OFFSET_MASK;
  const std::vector<ThreadBlock*>& blocks = current->block.cluster.blocks;
  if (address % alignment) {
    fail(std::string(what) + " at an address of shared memory that is not a multiple of " +
         std::to_string(alignment));
  }
  if (rank >= blocks.size()) fail(std::string(what) + " in a thread block that the cluster does not have");
  if (blocks[rank]->live == 0) fail(std::string(what) + " in a thread block that has ended");
  if (!SharedMemory::has(offset, bytes)) fail(std::string(what) + " outside of shared memory");
  return blocks[rank]->memory.at(offset);
}

void* static_shared(const void* key, size_t bytes) { return current->block.memory.variable(key, bytes); }

void* dynamic_shared() { return current->block.memory.dynamic(); }

uint32_t shared_address(const void* pointer) {
  const ThreadBlock& block = current->block;
  if (!block.memory.contains(pointer)) fail("the pointer does not point into the thread block's shared memory");
  return block.rank << RANK_SHIFT | block.memory.offset_of(pointer);
}

}  // namespace emulator
