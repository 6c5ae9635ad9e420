// Tiles of keys and values in bytes on their way to a warp through shared memory (sm_90): each warp has a ring of
// its own, and asks for a tile by bulk copies as soon as it is done with the one in its place. Registers have room
// for a tile and nothing ahead of it; this way several are under way. Scales do not come along.

#pragma once

#include "attention/decode_tiles.cuh"
#include "common/bulk_copy.cuh"
#include "common/unit_sums.cuh"

constexpr int TILE_BYTES = TILE_TOKENS * HEAD_SIZE;
constexpr int BLOCK_BYTES = BLOCK_SIZE * HEAD_SIZE;  // of a head's keys, or values, in a block
static_assert(CACHE_KIND && PARTS == 1, "keys and values are bytes, and a tile fits into the registers");

struct StagedTile {
  alignas(128) unsigned char keys[TILE_BYTES], values[TILE_BYTES];  // block after block, as in the cache
};

template <int WARPS>
struct StagedTiles {
  StagedTile tiles[WARPS][STAGED];
  uint64 filled[WARPS][STAGED];
};

// A warp's ring of the tiles from `next` on, `step` apart, as far as they lie before `end`.
struct TileRing {
  const PagedContext& context;
  StagedTile* tiles;
  uint32 filled;  // address of the first barrier
  int next, step, end;
  int next_block;  // of this lane's copy of tile `next`, as it stands in the table
  Ring<STAGED> at, filling;
  int started = 0;  // tiles

  template <int WARPS>
  __device__ __forceinline__ TileRing(StagedTiles<WARPS>& shared, int warp, const PagedContext& where, int first,
                                      int end_)
      : context(where),
        tiles(shared.tiles[warp]),
        filled(shared_address(shared.filled[warp])),
        next(first),
        step(WARPS),
        end(end_) {
    read_block();
    if (lane() == 0) {
      for (int i = 0; i < STAGED; i++) init_barrier(filled + 8 * i, 1);
      publish_barriers();
      show_to_copies();
    }
    __syncwarp();
  }

  // As many tiles as there is room for, of those before `before`.
  __device__ __forceinline__ void start(int before) {
    while (started < STAGED && next < min(before, end)) {
      fill();
      started++;
    }
  }

  // The tile that comes next, when it is there.
  __device__ __forceinline__ const StagedTile& take() const {
    wait(filled + 8 * at.stage, at.parity);
    return tiles[at.stage];
  }

  // `seen` is made of all that this lane wants of the tile; another one may come.
  __device__ __forceinline__ void give_back(uint32 seen) {
    const bool there = all_are_there(seen);
    __syncwarp();
    at.advance();
    if (there && next < end) fill();
  }

 private:
  __device__ __forceinline__ static int lane() { return threadIdx.x % WARP_SIZE; }

  // The first lanes have a copy each: the keys or the values of one block.
  __device__ __forceinline__ void read_block() {
    const int first = next * TILE_BLOCKS, own = first + lane() % TILE_BLOCKS;
    // The first block of a tile is the sequence's; it stands in for those past the end.
    const int index = own * BLOCK_SIZE < context.end ? own : first;
    next_block = __ldg(context.block_table + min(index, context.max_blocks - 1));
  }

  __device__ __forceinline__ void fill() {
    StagedTile& to = tiles[filling.stage];
    const uint32 barrier = filled + 8 * filling.stage;
    if (lane() == 0) expect_bytes(barrier, 2 * TILE_BYTES);
    __syncwarp();
    if (lane() < 2 * TILE_BLOCKS) {
      const bool is_key = lane() < TILE_BLOCKS;
      const Cached* from = is_key ? context.key_cache + next_block * context.key_stride
                                  : context.value_cache + next_block * context.value_stride;
      unsigned char* elements = is_key ? to.keys : to.values;
      copy_bulk(elements + lane() % TILE_BLOCKS * BLOCK_BYTES, from, BLOCK_BYTES, barrier);
    }
    filling.advance();
    next += step;
    if (next < end) read_block();
  }
};
