"""Launches every kernel on small inputs with nothing else on the GPU, for `compute-sanitizer`.

    compute-sanitizer --tool racecheck python -m tools.sanitize_kernels
    compute-sanitizer --tool memcheck --report-api-errors no python -m tools.sanitize_kernels
    python -m tools.sanitize_kernels ranks experts     # these kinds alone

The sanitizer's racecheck stops inside matrix products of torch's own libraries, so tensors are made on the CPU, and
what the kernels leave is compared there with the torch version of the same op.
"""

# mypy: disable-error-code="arg-type,call-arg,attr-defined,misc,union-attr"

import sys
from dataclasses import replace

import torch

from pagedchat.ops.attention import prefill_mma, prefill_simt, prefill_wgmma
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_grid import SplitPlan
from pagedchat.ops.attention.decode_shared import decode_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import decode_shape, decode_split, launch_on_splits
from pagedchat.ops.attention.merge_attn_states import merge_attn_states
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.copy_blocks import copy_blocks
from pagedchat.ops.cache.gather_cached_kv import gather_cached_kv
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.cache.swap_blocks import swap_blocks
from tools.sanitize_beams import beam_cases
from tools.sanitize_bytes import byte_cases
from tools.sanitize_case import (
    NUM_KV_HEADS,
    SHARED,
    Tensors,
    index,
    on_both,
    paged_inputs,
    random_tensor,
)
from tools.sanitize_experts import expert_cases
from tools.sanitize_products import head_cases, product_cases
from tools.sanitize_quantized import quantized_cases
from tools.sanitize_ranks import rank_cases
from tools.sanitize_sampling import sampling_cases
from tools.sanitize_screening import screening_cases
from tools.sanitize_steps import step_cases


def of_heads(group_size: int) -> AttentionOptions:
    """With slopes and sinks of all heads."""
    num_heads = NUM_KV_HEADS * group_size
    slopes, sinks = torch.linspace(0.01, 0.5, num_heads), torch.linspace(-3.0, 3.0, num_heads)
    return AttentionOptions(scale=0.125, alibi_slopes=slopes, sinks=sinks)


def on_device(options: AttentionOptions, query: torch.Tensor) -> AttentionOptions:
    """The same with slopes and sinks where the query is."""
    if options.sinks is None:
        return options
    return replace(
        options, alibi_slopes=options.alibi_slopes.to(query.device), sinks=options.sinks.to(query.device)
    )


def decode_cases() -> list[bool]:
    """One query token a sequence: tensor cores, CUDA cores, a shared prefix."""
    results = []
    lens = [133, 700, 150, 1200]
    for head_size, group_size, options in (
        (64, 1, AttentionOptions(scale=0.125)),
        (128, 4, AttentionOptions(scale=0.09, cap=30.0)),
        (64, 4, AttentionOptions(scale=0.125, sliding_window=100)),
        (64, 2, of_heads(2)),
    ):
        inputs = paged_inputs(lens, head_size, group_size, torch.float16, len(lens))

        def split(t: Tensors, options: AttentionOptions = options) -> Tensors:
            call = AttentionCall.to_new(*t, on_device(options, t[0]))
            return [decode_split(call, max_seq_len=max(lens))]

        def simt(t: Tensors, options: AttentionOptions = options) -> Tensors:
            return [decode_simt(AttentionCall.to_new(*t, on_device(options, t[0])))]

        results.append(on_both(f"decode_split {head_size} x{group_size}", inputs, split))
        results.append(on_both(f"decode_simt {head_size} x{group_size}", inputs, simt))
        if options.sliding_window is None:
            extra = [index(*[SHARED] * len(lens)), index(0, len(lens))]
            for own in (64, max(lens) - SHARED):

                def shared(t: Tensors, own: int = own, options: AttentionOptions = options) -> Tensors:
                    sizes = {"max_own_len": own, "max_shared_len": SHARED, "max_group_size": len(lens)}
                    call = AttentionCall.to_new(*t[:5], on_device(options, t[0]))
                    return [decode_shared(call, *t[5:], **sizes)]

                cut = [*inputs[:4], inputs[4].clamp(max=SHARED + own)]
                name = f"decode_shared {head_size} x{group_size} own {own}"
                results.append(on_both(name, [*cut, *extra], shared))
            results += [
                joined_case(f"{head_size} x{group_size}", inputs, options, gathers=it) for it in (True, False)
            ]
    return results


def joined_case(name: str, inputs: Tensors, options: AttentionOptions, *, gathers: bool) -> bool:
    """Sequences in ten parts as captured steps have them: gathered by clusters, or handed over."""

    def split(t: Tensors) -> Tensors:
        call = AttentionCall.to_new(*t, on_device(options, t[0]))
        if not call.query.is_cuda:
            return [decode_split(call, max_seq_len=1200)]
        launch_on_splits(call, decode_shape(call), SplitPlan(4, 4, 10, gathers=gathers), overlap=True)
        return [call.output]

    return on_both(f"decode_split {name} {'gathered' if gathers else 'handed over'}", inputs, split)


def prefill_cases() -> list[bool]:
    """Chunks of query tokens: wgmma, mma, CUDA cores, split keys."""
    results = []
    kinds = {
        "mma": (torch.float16, prefill_mma),
        "wgmma": (torch.float16, prefill_wgmma),
        "simt": (torch.float32, prefill_simt),
    }
    for kind, (dtype, module) in kinds.items():
        for head_size, group_size, query_lens, seq_lens in (
            (64, 1, [70, 9, 130], [200, 140, 130]),
            (128, 4, [33, 64, 1], [300, 150, 129]),
            (64, 1, [16], [1500]),
        ):
            inputs = paged_inputs(seq_lens, head_size, group_size, dtype, sum(query_lens))
            starts = index(0, *torch.tensor(query_lens).cumsum(0).tolist())
            options = AttentionOptions(scale=head_size**-0.5) if group_size > 1 else of_heads(group_size)
            longest = max(query_lens)

            def prefill(
                t: Tensors, module: object = module, options: AttentionOptions = options, longest: int = longest
            ) -> Tensors:
                options = on_device(options, t[0])
                call = AttentionCall.to_new(*t[:5], options)
                if module is prefill_mma:
                    by_itself = AttentionCall.to_new(*t[:5], options)
                    paged_prefill(by_itself, t[5], max_query_len=longest, batch_invariant=True)
                    return [paged_prefill(call, t[5], max_query_len=longest), by_itself.output]
                if not t[0].is_cuda:
                    return [paged_prefill(call, t[5], max_query_len=longest)]
                module.launch(call, t[5], longest)
                return [call.output]

            name = f"prefill {kind} {head_size} x{group_size} {query_lens}"
            results.append(on_both(name, [*inputs, starts], prefill))
    return results


def cache_cases() -> list[bool]:
    """Tokens into the cache and out of it, blocks around in it, partial attentions into one."""
    results = []
    for dtype in (torch.float16, torch.float32):
        _, key_cache, value_cache, tables, _ = paged_inputs([300, 200], 64, 1, dtype, 1)
        for num_tokens in (3, 150):
            rows = [random_tensor(num_tokens, NUM_KV_HEADS, 64, dtype=dtype) for _ in range(2)]
            slots = torch.arange(5, 5 + num_tokens)
            slots[1] = -1

            def write(t: Tensors) -> Tensors:
                reshape_and_cache(*t)
                return t[2:4]

            name = f"reshape_and_cache {num_tokens} {dtype}"
            results.append(on_both(name, [*rows, key_cache, value_cache, slots], write))

        def gather(t: Tensors) -> Tensors:
            return list(gather_cached_kv(*t, 490))

        results.append(
            on_both(f"gather_cached_kv {dtype}", [key_cache, value_cache, tables, index(0, 295, 490)], gather)
        )
    cache = random_tensor(3, 2, 40, 1024)
    pairs = torch.randperm(40)
    for disjoint in (True, False):

        def copy(t: Tensors, disjoint: bool = disjoint) -> Tensors:
            copy_blocks(*t, disjoint=disjoint)
            return t[:1]

        results.append(on_both(f"copy_blocks disjoint={disjoint}", [cache, pairs[:15], pairs[15:30]], copy))
    states = [random_tensor(9, 4, 64), torch.randn(9, 4), random_tensor(9, 4, 64), torch.randn(9, 4)]

    def merge(t: Tensors) -> Tensors:
        output, lse = torch.empty_like(t[0]), torch.empty_like(t[1])
        merge_attn_states(output, lse, *t)
        return [output, lse]

    return [*results, on_both("merge_attn_states", states, merge), swap_case()]


def swap_case() -> bool:
    """Blocks to pinned memory and back into other blocks."""
    device, host = (
        random_tensor(3, 2, 20, 1024).cuda(),
        torch.zeros(3, 2, 8, 1024, dtype=torch.float16, pin_memory=True),
    )
    src, there, back = torch.arange(0, 6), torch.arange(2, 8), torch.arange(10, 16)
    swap_blocks(device, host, src, there)
    swap_blocks(host, device, there, back)
    torch.cuda.synchronize()
    after = device.cpu()
    same = bool((after[:, :, 10:16] == after[:, :, :6]).all())
    print(f"{'swap_blocks':<44} {'ok' if same else 'WRONG'}", flush=True)
    return same


CASES = {
    "decode": decode_cases,
    "prefill": prefill_cases,
    "cache": cache_cases,
    "heads": head_cases,
    "products": product_cases,
    "screening": screening_cases,
    "bytes": byte_cases,
    "experts": expert_cases,
    "quantized": quantized_cases,
    "steps": step_cases,
    "sampling": sampling_cases,
    "beams": beam_cases,
    "ranks": rank_cases,
}


def main(names: list[str]) -> int:
    """Run the cases of these names, or all; returns 1 if any kernel is wrong."""
    torch.manual_seed(0)
    results = [right for name in names or CASES for right in CASES[name]()]
    print(f"{sum(results)} of {len(results)} right")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
