"""Which cases of the longest tests run every time, and which with `--deep` alone.

A test of three parameters has cases for all that they can be together. Of those named here a covering set runs
every time: each value of each parameter at least once, in as few cases as that takes. Of a test whose cases have
nothing in common every second one runs, or every third. `make check-deep` runs all of them, and so does a machine
with a GPU, or who names a test.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

import pytest

COVERED = frozenset({
    "tests/doctor/test_model_steps.py::test_decodes_launch_what_is_said",
    "tests/integration/test_batch_invariant.py::test_logits_are_the_same_on_every_road_of_the_kernels",
    "tests/integration/test_same_tokens.py::test_any_chunk_size_with_and_without_prefix_cache",
    "tests/integration/test_same_tokens.py::test_preemption",
    "tests/models/quantized/test_families.py::test_tokens_are_those_of_the_dequantised_weights",
    "tests/ops/attention/test_call_over_bytes.py::test_every_rule_of_scores",
    "tests/ops/attention/test_call_over_bytes.py::test_every_shape_of_head_and_block",
    "tests/ops/attention/test_call_over_bytes.py::test_values_of_very_different_sizes_leave_no_trace_of_each_other",
    "tests/ops/attention/test_decode_split.py::test_parts_of_a_cluster_are_gathered_in_shared_memory",
    "tests/ops/attention/test_prefill.py::test_every_shape_of_head_and_block",
    "tests/ops/attention/test_prefill_invariant.py::test_a_token_is_the_same_alone_and_in_any_chunk",
    "tests/ops/cache/test_heads_to_slots.py::test_does_what_heads_to_cache_does",
    "tests/ops/cpu/test_attention.py::test_attention_over_blocks",
    "tests/ops/experts/test_stacked_weight.py::test_agrees_with_the_definition",
    "tests/ops/products/test_deferred_norm.py::test_by_clusters",
    "tests/ops/quantized/test_few_bits_linear.py::test_agrees_with_the_definition",
    "tests/ops/sampling/test_sample.py::test_draws_follow_the_distribution",
    "tests/runtime/graphs/decode/test_decode_steps.py::test_chats_over_a_small_cache_get_the_same_tokens",
    "tests/runtime/graphs/test_families.py::test_decodes_are_those_of_the_modules",
    "tests/runtime/graphs/test_truth.py::test_decodes",
    "tests/runtime/graphs/test_truth.py::test_prompts",
    "tests/runtime/step/test_model_runner.py::test_prompts_that_come_while_others_decode",
    "tests/runtime/step/test_model_runner.py::test_together_in_chunks",
    "tests/tools/test_emulator_all_layers.py::test_norms_of_16_bits_are_right_however_large_the_stream_and_their_weights_are",
    "tests/tools/test_emulator_all_layers.py::test_several_rows_of_16_bits_give_what_their_parts_give",
    "tests/tools/test_emulator_all_layers.py::test_weights_of_few_bits_give_what_their_parts_give",
})  # fmt: skip
"""Tests of which a covering set of cases runs every time."""

EVERY = {
    "tests/bench/quality/test_quality.py::test_a_small_cache_costs_half_a_percent_at_most": 2,
    "tests/distributed/test_features.py::test_a_small_cache_is_small_on_each_rank": 2,
    "tests/distributed/test_features.py::test_drafts_change_no_token": 2,
    "tests/distributed/test_ranks.py::test_drawn_answers_that_share_a_prompt": 2,
    "tests/distributed/test_ranks.py::test_two_ranks_say_what_one_process_says": 3,
    "tests/doctor/test_model_steps.py::test_prompts_launch_what_is_said": 2,
    "tests/engine/test_told_walk.py::test_told_tokens_are_those_of_the_sequence": 3,
    "tests/faults/test_cpu_kernels.py::test_a_cpu_kernel_that_is_wrong_makes_way_for_torch": 3,
    "tests/fuzz/test_terminal.py::test_nothing_outside_the_pane_changes": 2,
    "tests/integration/test_bad_few_bits.py::test_a_gguf_file_that_cannot_be_used": 2,
    "tests/integration/test_batch_invariant.py::test_a_reply_is_the_same_alone_and_in_any_mix": 3,
    "tests/integration/test_batch_invariant.py::test_logits_are_the_same_on_every_road_of_torch": 3,
    "tests/integration/test_beam_search.py::test_the_same_under_preemption": 2,
    "tests/integration/test_draft_model.py::test_replies_are_those_without_drafts": 4,
    "tests/integration/test_draft_model.py::test_tokens_are_as_frequent_as_without_drafts": 2,
    "tests/integration/test_isolation.py::test_a_reply_is_the_same_alone_and_in_any_mix": 2,
    "tests/integration/test_small_cache.py::test_preempted_chats_go_on_as_if_nothing_had_been": 2,
    "tests/integration/test_speculation.py::test_replies_are_those_without_drafts": 2,
    "tests/integration/test_structured.py::test_replies_that_are_preempted_go_on_in_their_form": 2,
    "tests/layers/test_experts.py::test_a_few_sizes_of_batches_launch_all_kernels_that_any_size_does": 2,
    "tests/models/families/test_families.py::test_logits": 3,
    "tests/models/families/test_families.py::test_rounding_of_16_bits_costs_no_more": 4,
    "tests/models/families/test_families.py::test_tokens_through_the_engine": 3,
    "tests/models/gguf/test_mixtures.py::test_kinds": 3,
    "tests/models/gguf/test_models.py::test_kinds": 2,
    "tests/models/parts/test_cutting.py::test_all_ranks_say_what_the_whole_model_says": 4,
    "tests/models/parts/test_cutting.py::test_stored_few_bits_of_other_forms_are_cut_as_they_are": 2,
    "tests/models/quantized/test_memory.py::test_the_peak_is_that_of_the_few_bits_and_one_layer": 2,
    "tests/models/quantized/test_on_gpu.py::test_loading_gives_what_the_bits_stand_for": 2,
    "tests/models/quantized/test_stored.py::test_tokens_are_those_of_what_is_meant": 3,
    "tests/ops/attention/test_decode_split.py::test_long_and_short_are_shared_out_evenly": 2,
    "tests/ops/attention/test_decode_split.py::test_parts_are_handed_over_to_the_last_one_to_begin": 3,
    "tests/ops/cache/test_heads_to_cache.py::test_heads_go_to_their_slots": 2,
    "tests/ops/clusters/test_cluster_linear.py::test_two_products_side_by_side_are_those_of_each": 2,
    "tests/ops/clusters/test_cluster_linear.py::test_weights_of_few_bits": 2,
    "tests/ops/cpu/test_other_processors.py::test_kernels_have_the_instructions_of_the_processor": 5,
    "tests/ops/products/test_deferred_norm.py::test_by_warpgroups": 3,
    "tests/ops/products/test_deferred_norm.py::test_gates_by_clusters": 2,
    "tests/ops/products/test_invariant_linear.py::test_every_tile_gives_the_same": 2,
    "tests/ops/products/test_small_batch_linear.py::test_rows_of_few_bits_in_pairs_of_units_and_several_stages": 2,
    "tests/ops/products/test_stream_k_linear.py::test_every_way_in_which_tiles_are_shared_out": 3,
    "tests/ops/products/test_wide_gates.py::test_every_way_in_which_tiles_are_shared_out": 3,
    "tests/ops/quantized/test_few_bits_linear.py::test_every_way_to_cut_it_gives_the_product": 2,
    "tests/ops/sampling/test_sample.py::test_exactly_the_first_tokens_stay": 2,
    "tests/ops/test_variants_of_ops.py::test_ops_ask_only_for_what_the_catalogue_lists_for_the_model": 3,
    "tests/runtime/attention/test_host_cache.py::test_the_end_of_the_program_cuts_nothing_off": 2,
    "tests/runtime/cpu/test_few_bits.py::test_whole_steps_are_what_the_modules_say": 2,
    "tests/runtime/cpu/test_likeliest.py::test_tokens_are_those_of_all_logits": 2,
    "tests/runtime/cpu/test_prompts.py::test_prompts_are_what_the_modules_say": 2,
    "tests/runtime/cpu/test_random_walk.py::test_no_slot_that_is_stale_or_foreign_is_read": 2,
    "tests/runtime/cpu/test_step.py::test_greedy_tokens_are_those_of_transformers": 2,
    "tests/runtime/graphs/decode/test_beams.py::test_a_search_on_the_device_finds_the_same": 2,
    "tests/runtime/graphs/decode/test_beams.py::test_steps_that_were_begun_in_vain_leave_everything_as_it_was": 2,
    "tests/runtime/graphs/decode/test_decode_steps.py::test_steps_of_other_layers_give_the_same_tokens": 3,
    "tests/runtime/graphs/decode/test_sharing.py::test_chats_over_one_beginning_run_captured_too": 2,
    "tests/runtime/graphs/prefill/test_prefill_steps.py::test_chats_with_captured_prefills_get_the_same_tokens": 2,
    "tests/runtime/graphs/prefill/test_prefill_steps.py::test_logits_are_those_of_the_eager_pass": 2,
    "tests/runtime/graphs/test_drafts.py::test_chats_get_the_same_tokens_with_drafts": 2,
    "tests/runtime/graphs/test_families.py::test_prompts_are_those_of_the_modules": 2,
    "tests/runtime/graphs/test_few_bits.py::test_decodes_are_those_of_the_modules": 2,
    "tests/runtime/graphs/test_few_bits.py::test_every_family": 3,
    "tests/runtime/graphs/test_foreign_model.py::test_captured_steps_give_the_tokens_of_eager_ones": 2,
    "tests/runtime/graphs/test_random_walk.py::test_no_slot_that_is_stale_or_foreign_is_read": 2,
    "tests/runtime/graphs/test_ranks.py::test_every_chain": 2,
    "tests/runtime/graphs/test_ranks.py::test_every_family_in_few_launches": 3,
    "tests/runtime/graphs/test_truth.py::test_drafts": 4,
    "tests/runtime/step/test_sampler.py::test_draws_follow_the_filtered_distribution": 3,
    "tests/simulation/test_simulation.py::test_nothing_is_lost_and_nothing_is_wrong": 8,
    "tests/tools/test_emulator_clusters.py::test_a_step_computes_what_its_parts_compute": 3,
    "tests/tools/test_emulator_every_kernel.py::test_a_kernel_makes_what_torch_makes": 4,
    "tests/tools/test_emulator_kernels.py::test_a_whole_step_with_many_more_tiles_than_room": 3,
    "tests/tools/test_emulator_kernels.py::test_norms_of_rows_that_no_stage_shares_out": 3,
    "tests/tools/test_emulator_screening.py::test_fewer_rows_than_thread_blocks_and_more_tiles_than_room": 2,
    "tests/tools/test_emulator_screening.py::test_heads_that_make_it_hard": 3,
    "tests/tools/test_emulator_screening.py::test_rows_at_the_ends_of_what_bfloat16_holds": 2,
    "tests/tools/test_emulator_screening.py::test_the_token_is_the_best_one": 2,
    "tests/tools/test_emulator_several_rows.py::test_a_step_of_several_sequences": 3,
    "tests/tools/test_soak.py::test_a_long_run_of_one_engine_leaves_nothing": 2,
    "tests/tui/test_glyphs.py::test_all_that_is_drawn": 2,
    "tests/tui/tour/test_tour.py::test_all_steps_are_shown_and_everything_is_put_back": 2,
    "tests/view/markdown/test_stream.py::test_a_long_block_is_not_parsed_again_and_again": 2,
}
"""Tests of whose cases every n-th runs every time, the first among them."""


def deep_cases(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of the tests named above, the cases that need not run every time."""
    deep: set[pytest.Item] = set()
    for name, group in groupby(items, key=lambda item: item.nodeid.split("[")[0]):
        cases = [item for item in group if isinstance(item, pytest.Function)]
        if name in COVERED:
            deep |= set(cases) - set(covering(cases))
        elif name in EVERY:
            deep |= set(cases) - set(cases[:: EVERY[name]])
    return deep


def covering(cases: Sequence[pytest.Function]) -> list[pytest.Function]:
    """As few cases as are found one by one in which every value of every parameter occurs, by their names.

    It is always the one with the most values that did not occur yet.
    """
    values = {case: set(enumerate(case.callspec.id.split("-"))) for case in cases}
    unseen = set().union(*values.values())
    chosen = []
    while unseen:
        best = max(cases, key=lambda case: len(values[case] & unseen))
        chosen.append(best)
        unseen -= values[best]
    return chosen


def names_by_file() -> dict[str, set[str]]:
    """All tests named above, by the file that is to have them."""
    by_file: defaultdict[str, set[str]] = defaultdict(set)
    for name in (*COVERED, *EVERY):
        file, _, test = name.partition("::")
        by_file[file].add(test)
    return by_file
