// What Python calls of a translated kernel: the sizes of its parameters, and a launch.

#pragma once

#include <utility>

#include "api.h"

namespace emulator {

// A launch as Python describes it.
struct Shape {
  unsigned grid[3], block[3], cluster, shared_bytes, cooperative, seed;
};

// Runs `body(data)` as every thread of the grid; what went wrong, or null. The text lives until the next launch.
const char* run_grid(const Shape& shape, void (*body)(void* data), void* data);

// An argument, at whatever address it is.
template <typename T>
T value_at(const void* address) {
  T value;
  __builtin_memcpy(&value, address, sizeof(T));
  return value;
}

// A kernel, with an address for each of its arguments.
template <typename... Parameters>
struct Call {
  void (*kernel)(Parameters...);
  void** arguments;

  template <size_t... INDEX>
  void run(std::index_sequence<INDEX...>) const {
    kernel(value_at<Parameters>(arguments[INDEX])...);
  }
  static void body(void* data) { static_cast<const Call*>(data)->run(std::index_sequence_for<Parameters...>()); }
};

// How many parameters there are; their sizes in bytes.
template <typename... Parameters>
int parameter_sizes(void (*)(Parameters...), int* sizes) {
  int count = 0;
  ((sizes[count++] = sizeof(Parameters)), ...);
  return count;
}

template <typename... Parameters>
const char* launch(void (*kernel)(Parameters...), void** arguments, const Shape& shape) {
  Call<Parameters...> call = {kernel, arguments};
  return run_grid(shape, call.body, &call);
}

}  // namespace emulator
