// Which text of PTX is whose. The first entry that the text begins with counts.

#include <string.h>

#include "ptx.h"

namespace emulator {
namespace {

struct Entry {
  const char* beginning;
  Run run;
};

const Entry TABLE[] = {
    {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8", multiply_integers_in_warp},
    {"mma.sync.aligned.m16n8k", multiply_in_warp},
    {"ldmatrix.sync.aligned.m8n8.x4", load_matrices},
    {"stmatrix.sync.aligned.m8n8.x4", store_matrices},
    {"movmatrix.sync.aligned.m8n8.trans", transpose_matrix},
    {"wgmma.mma_async.sync.aligned.m64n", multiply_in_warpgroup},
    {"setp.ne.b32p,%,0;wgmma.mma_async.sync.aligned.m64n", multiply_in_warpgroup},
    {"wgmma.fence", fence_warpgroup},
    {"wgmma.commit_group", commit_warpgroup},
    {"wgmma.wait_group", wait_for_warpgroup},
    {"ld.", load},
    {"st.async", store_async},
    {"st.", store},
    {"red.", add_in_memory},
    {"atom.", add_in_memory},
    {"mapa.shared::cluster", map_address},
    {"cp.async.cg.shared.global", copy_16_bytes},
    {"cp.async.mbarrier.arrive.noinc", arrive_behind_copies},
    {"cp.async.commit_group", close_copies},
    {"cp.async.wait_group", wait_for_copies},
    {"cp.async.wait_all", wait_for_copies},
    {"cp.async.bulk.prefetch", nothing},
    {"cp.async.bulk.shared::cluster.global", copy_bulk_from_global},
    {"cp.async.bulk.shared::cluster.shared::cta", copy_bulk_from_shared},
    {"cp.async.bulk.tensor.2d.shared::cluster.global", copy_tile},
    {"cp.async.bulk.tensor.2d.global.shared::cta", store_tile},
    {"cp.async.bulk.commit_group", close_stores},
    {"cp.async.bulk.wait_group", wait_for_stores},
    {"mbarrier.init", initialise_mbarrier},
    {"mbarrier.arrive.expect_tx", arrive_expecting_bytes},
    {"mbarrier.expect_tx", expect_bytes_alone},
    {"mbarrier.arrive", arrive},
    {"mbarrier.try_wait.parity", try_phase},
    {"mbarrier.test_wait.parity", test_phase},
    {"bar.sync", sync_named},
    {"barrier.sync", sync_named},
    {"bar.arrive", arrive_named},
    {"barrier.arrive", arrive_named},
    {"barrier.cluster.arrive", arrive_in_cluster},
    {"barrier.cluster.wait", wait_in_cluster},
    {"prefetch", nothing},
    {"griddepcontrol", nothing},  // launches come one after another
    {"fence", nothing},           // every access is in order
    {"setmaxnreg", nothing},
    {"createpolicy", make_policy},
    {"elect.sync_|p,0xffffffff;", elect_first_lane},
    {"ex2.approx", exponential},
    {"mov.b32{l,h},%;cvt.f32.f16%,l;cvt.f32.f16%,h;", unpack_float16},
    {"mov.b32{l,h},%;cvt.rn.f16x2.e4m3x2%,l;", unpack_e4m3},
    {"lop3.b32%,%,%,%,0xEA;", mask_and_add_bits},
    {"lop3.b32%,%,%,%,0x6A;", mask_and_flip_bits},
    {"max.u16x2", larger_halves},
    {"shl.b32%,%,16;and.b32%,%,0xffff0000;", unpack_bfloat16},
    {"lop3.b32%,%,%,%,0xea", and_or},
    {"setp.lt.f32p,%,0f00000000;vote.sync.any.predp,p,0xffffffff;@ptrap;", trap_below_zero},
    {"mov.u32%,%tid.x", read_thread_index},
    {"mov.u32%,%smid", read_multiprocessor},
    {"mov.u32%,%cluster_ctarank", read_rank},
    {"mov.u32%,%cluster_nctaid.x", read_cluster_size},
};

}  // namespace

Run find_run(const std::string& text) {
  if (text.empty()) return nothing;  // holds the compiler back
  for (const Entry& entry : TABLE) {
    if (text.compare(0, strlen(entry.beginning), entry.beginning) == 0) return entry.run;
  }
  return nullptr;
}

}  // namespace emulator
