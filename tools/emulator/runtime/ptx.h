// What PTX texts do, by the files that know it; ptx_table.cpp says which text is whose.

#pragma once

#include "instruction.h"

namespace emulator {

// ptx_memory.cpp
void load(const Arguments& arguments);
void store(const Arguments& arguments);
void store_async(const Arguments& arguments);
void add_in_memory(const Arguments& arguments);
void map_address(const Arguments& arguments);

// ptx_copies.cpp
void copy_16_bytes(const Arguments& arguments);
void close_copies(const Arguments& arguments);
void wait_for_copies(const Arguments& arguments);
void arrive_behind_copies(const Arguments& arguments);
void copy_bulk_from_global(const Arguments& arguments);
void copy_bulk_from_shared(const Arguments& arguments);
void copy_tile(const Arguments& arguments);
void store_tile(const Arguments& arguments);
void close_stores(const Arguments& arguments);
void wait_for_stores(const Arguments& arguments);

// ptx_barriers.cpp
void initialise_mbarrier(const Arguments& arguments);
void arrive_expecting_bytes(const Arguments& arguments);
void expect_bytes_alone(const Arguments& arguments);
void arrive(const Arguments& arguments);
void try_phase(const Arguments& arguments);
void test_phase(const Arguments& arguments);
void sync_named(const Arguments& arguments);
void arrive_named(const Arguments& arguments);
void arrive_in_cluster(const Arguments& arguments);
void wait_in_cluster(const Arguments& arguments);

// ptx_numbers.cpp
void nothing(const Arguments& arguments);
void make_policy(const Arguments& arguments);
void exponential(const Arguments& arguments);
void unpack_float16(const Arguments& arguments);
void unpack_e4m3(const Arguments& arguments);
void mask_and_add_bits(const Arguments& arguments);
void mask_and_flip_bits(const Arguments& arguments);
void larger_halves(const Arguments& arguments);
void unpack_bfloat16(const Arguments& arguments);
void and_or(const Arguments& arguments);
void trap_below_zero(const Arguments& arguments);
void read_thread_index(const Arguments& arguments);
void read_multiprocessor(const Arguments& arguments);
void read_rank(const Arguments& arguments);
void read_cluster_size(const Arguments& arguments);
void elect_first_lane(const Arguments& arguments);

// mma.cpp
void multiply_in_warp(const Arguments& arguments);

// mma_integers.cpp
void multiply_integers_in_warp(const Arguments& arguments);

// matrices.cpp
void load_matrices(const Arguments& arguments);
void store_matrices(const Arguments& arguments);
void transpose_matrix(const Arguments& arguments);

// wgmma.cpp
void multiply_in_warpgroup(const Arguments& arguments);
void fence_warpgroup(const Arguments& arguments);
void commit_warpgroup(const Arguments& arguments);
void wait_for_warpgroup(const Arguments& arguments);

}  // namespace emulator
