// The shared memory of a thread block: static variables from its beginning, dynamic memory up to its very end.
//
// Behind the end lies memory that nobody may touch. What nobody has written yet has all bits set, which are NaNs.

#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace emulator {

class SharedMemory {
 public:
  explicit SharedMemory(size_t dynamic_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* variable(const void* key, size_t bytes);  // a static one; the same for the same key
  void* dynamic() const { return base_ + dynamic_offset_; }
  bool contains(const void* pointer) const;
  bool is_close_behind(const void* pointer) const;  // where an index that is too large leads
  uint32_t offset_of(const void* pointer) const;
  char* at(uint32_t offset) const { return base_ + offset; }
  static bool has(uint32_t offset, size_t bytes);
  bool is_clean_between() const;  // nobody wrote where no variable is

 private:
  struct Piece {
    const void* key;
    size_t offset, bytes;
  };

  bool is_untouched(size_t begin, size_t end) const;

  char* base_;
  size_t dynamic_bytes_, dynamic_offset_;
  std::vector<Piece> pieces_;
};

// Where an address of shared memory leads, be it of this thread block or of another one in the cluster; fails where
// it leads nowhere or is not a multiple of `alignment`.
char* at_shared(uint32_t address, size_t bytes, size_t alignment, const char* what);

// A shared address is the thread block's rank in the cluster and an offset.
constexpr int RANK_SHIFT = 24;
constexpr uint32_t OFFSET_MASK = (1u << RANK_SHIFT) - 1;

}  // namespace emulator
