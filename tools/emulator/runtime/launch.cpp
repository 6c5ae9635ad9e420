// A launch: which thread blocks there are, and which of them run at the same time.

#include <algorithm>

#include "failure.h"
#include "scheduler.h"
#include "wgmma.h"

namespace emulator {
namespace {

constexpr uint32_t MOST_TOGETHER = 8;  // clusters that run at the same time in a launch that is not cooperative

// Ranks lie along x, so thread blocks that follow each other make a cluster.
std::vector<uint3> all_indices(const Shape& shape) {
  std::vector<uint3> indices;
  for (unsigned z = 0; z < shape.grid[2]; z++) {
    for (unsigned y = 0; y < shape.grid[1]; y++) {
      for (unsigned x = 0; x < shape.grid[0]; x++) indices.push_back({x, y, z});
    }
  }
  return indices;
}

void check(const Shape& shape) {
  const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
  if (threads == 0 || threads > 1024) throw Failure("a thread block has 1 to 1024 threads");
  if (shape.cluster == 0 || shape.grid[0] % shape.cluster) throw Failure("the grid is not made of whole clusters");
}

// Numbers of clusters in the order in which they run: neighbours together for even seeds, as on a GPU.
std::vector<size_t> order_of(size_t num_clusters, const Shape& shape, Chance& chance) {
  std::vector<size_t> order(num_clusters);
  for (size_t i = 0; i < num_clusters; i++) order[i] = i;
  if (shape.seed % 2 == 0) return order;
  for (size_t i = num_clusters; i > 1; i--) std::swap(order[i - 1], order[chance.below(static_cast<uint32_t>(i))]);
  return order;
}

void run_clusters(const std::vector<size_t>& numbers, const std::vector<uint3>& indices, const Shape& shape) {
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::unique_ptr<ThreadBlock>> blocks;
  for (size_t number : numbers) {
    clusters.push_back(std::make_unique<Cluster>());
    for (unsigned rank = 0; rank < shape.cluster; rank++) {
      const uint3 index = indices[number * shape.cluster + rank];
      blocks.push_back(std::make_unique<ThreadBlock>(shape, index, rank, *clusters.back()));
      clusters.back()->blocks.push_back(blocks.back().get());
    }
  }
  run_together(blocks);
  for (const auto& block : blocks) {
    if (!block->memory.is_clean_between()) throw Failure("memory between or behind shared variables was written");
  }
}

void run_all(const Shape& shape, Chance& chance) {
  check(shape);
  const std::vector<uint3> indices = all_indices(shape);
  const std::vector<size_t> order = order_of(indices.size() / shape.cluster, shape, chance);
  for (size_t at = 0; at < order.size();) {
    const size_t most = shape.seed == 0 ? 1 : 1 + chance.below(MOST_TOGETHER);
    const size_t count = shape.cooperative ? order.size() : std::min(most, order.size() - at);
    run_clusters({order.begin() + at, order.begin() + at + count}, indices, shape);
    at += count;
  }
}

}  // namespace

const char* run_grid(const Shape& shape, void (*body)(void* data), void* data) {
  static std::string text;
  Launch launch = {shape, body, data, Chance(shape.seed), 0, {}};
  launch_now = &launch;
  const char* result = nullptr;
  try {
    const MemoryGuard guard;
    run_all(shape, launch.chance);
  } catch (const std::exception& error) {
    text = error.what();
    result = text.c_str();
  }
  current = nullptr;
  launch_now = nullptr;
  return result;
}

}  // namespace emulator
