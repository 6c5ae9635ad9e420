// Puts the parts of a sequence together where the thread blocks that made them are one cluster (sm_90): the pieces
// of all rows are dealt out among them, each sends what it has of a piece straight into the shared memory of the
// one that merges it, and nothing goes through global memory.
//
// A piece and how two become one: decode_merge.cuh. The order of the sums is fixed.

#pragma once

#include "attention/decode_merge.cuh"

#define GATHERS (__CUDA_ARCH__ >= 900 && !HANDS_OVER)

#if GATHERS
#define CLUSTER 16  // thread blocks at most; how many there are, a launch says
#include "common/cluster.cuh"
#include "common/mbarrier.cuh"

constexpr int MERGERS = 4;  // threads that merge a piece, each every so many-th part

template <int NUM_PIECES>
struct Gathered {
  static constexpr int PLACES = NUM_PIECES + CLUSTER - 1;  // of the pieces that are merged here, part after part

  float4 sums[PLACES];
  uint64 states[PLACES];
  uint64 arrived;

  // By all threads, before anything else: the others of the cluster may send from here on.
  __device__ __forceinline__ void announce() {
    if (threadIdx.x == 0) {
      init_barrier(shared_address(&arrived), 1);
      publish_barriers();
    }
    announce_to_cluster();
  }

  // Behind `wait_for_cluster`: sends the `part`-th of `num_parts` parts of all rows, which this thread block has.
  template <typename Shared>
  __device__ __forceinline__ void send(const Shared& shared, int part, int num_parts, int num_rows) {
    const int num_pieces = num_rows * ROW_PIECES, share = ceil_div(num_pieces, num_parts);
    if (threadIdx.x == 0)
      expect_bytes(shared_address(&arrived), num_parts * merged_here(part, share, num_pieces) * 24);
    for_block_pieces(shared, num_rows, [&](int i, const Piece& piece) {
      const int rank = i / share, place = part * share + i % share;
      send_to(&sums[place], &arrived, rank, piece.sum);
      send_to(&states[place], &arrived, rank,
              static_cast<uint64>(__float_as_uint(piece.state.m)) |
                  static_cast<uint64>(__float_as_uint(piece.state.l)) << 32);
    });
  }

  // Merges the pieces that are this thread block's to merge; `write(i, piece)` is called once for each.
  template <typename Write>
  __device__ __forceinline__ void merge(int part, int num_parts, int num_pieces, Write write) {
    const int share = ceil_div(num_pieces, num_parts), mine = merged_here(part, share, num_pieces);
    if (mine == 0) return;
    wait(shared_address(&arrived), 0);
    for_pieces<MERGERS>(mine, [&](int i, int merger, bool writes) {
      Piece merged;
      for (int k = merger; k < num_parts; k += MERGERS)
        merged.state.m = fmaxf(merged.state.m, reference_of(k * share + i));
      for (int k = merger; k < num_parts; k += MERGERS) {
        const float factor = exp2_below(reference_of(k * share + i), merged.state.m);
        add_scaled(merged.sum, sums[k * share + i], factor);
        merged.state.l += __uint_as_float(static_cast<uint32>(states[k * share + i] >> 32)) * factor;
      }
      merged.merge_lanes<MERGERS>();
      if (writes) write(part * share + i, merged);
    });
  }

 private:
  __device__ __forceinline__ static int merged_here(int part, int share, int num_pieces) {
    return max(0, min(share, num_pieces - part * share));
  }

  __device__ __forceinline__ float reference_of(int place) const {
    return __uint_as_float(static_cast<uint32>(states[place]));
  }
};
#endif
