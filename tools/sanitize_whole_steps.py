"""Whole decode steps in one launch for `sanitize_kernels`, which says how they are checked."""

import torch

from pagedchat.ops.all_layers.plan import plan_layers
from pagedchat.ops.all_layers.streamed_layers import StreamedLayers
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.ops.whole_step.plan import PersistentPlan, plan_clustered, plan_persistent
from pagedchat.ops.whole_step.screened_head import screen_head
from tests.ops.all_layers import layers_case
from tests.ops.whole_step.persistent_case import SHAPES, moved, random_model, random_state
from tools.sanitize_case import TOLERANCE

NUM_MULTIPROCESSORS, SHARED_LIMIT = 132, 227 << 10
"""That the steps are planned for."""


def whole_step_cases() -> list[bool]:
    """Short and long contexts, one thread block a head and clusters of them, one or two of which attend; thread
    blocks that attend to two tokens."""
    results = []
    for family, positions, context_len, make in (
        ("opt", [300], 512, plan_persistent),
        ("opt", [40, -1], 256, plan_persistent),
        ("llama", [700], 1024, plan_persistent),
        ("opt", [40, 250, -1, 7], 384, plan_persistent),
        ("llama", [300, 12, 700, -1], 1024, plan_persistent),
        ("opt", [300], 512, plan_clustered),
        ("opt", [500], 768, plan_clustered),
    ):
        shape = SHAPES[family]
        plan = make(shape, len(positions), context_len, NUM_MULTIPROCESSORS, SHARED_LIMIT)
        results.append(_whole_step_case(family, positions, plan))
    for kind, positions, normed_heads in (
        ("qwen2.5", [300, -1], False),
        ("qwen2.5", [300], False),
        ("qwen2.5", [300, 12, 700, -1], False),
        ("qwen3", [40, -1, 300, 7, 16, 15, 0, 64], True),
        ("small, heads of 128", [40], True),
        ("int4", [300], False),
        ("int4, values in int8", [300], False),
        ("int8", [40], False),
        ("fp8", [300], False),
    ):
        results.append(_all_layers_case(kind, positions, normed_heads=normed_heads))
    return results


def _all_layers_case(kind: str, positions: list[int], *, normed_heads: bool) -> bool:
    """Two steps of all layers in one launch, so that every set of published numbers is met."""
    shape = (layers_case.SHAPES | layers_case.FEW_BITS_SHAPES)[kind]
    plan = plan_layers(
        shape, len(positions), 512 if max(positions) < 510 else 1024, NUM_MULTIPROCESSORS, SHARED_LIMIT
    )
    if plan is None:
        raise RuntimeError(f"no plan for {kind} {positions}")
    model = layers_case.random_model(shape, torch.float16, biased=True, normed_heads=normed_heads)
    state = layers_case.random_state(positions)
    there, where = moved(model, "cuda"), moved(state, "cuda")
    hidden = torch.randn(2, len(positions), shape.hidden).half()
    found, launches = hidden.cuda(), (StreamedLayers(*model, plan), StreamedLayers(*there, plan))
    for step in range(2):
        launches[0](hidden[step], state)
        launches[1](found[step], where)
    error = float((found[:, 0].cpu().double() - hidden[:, 0].double()).norm() / hidden[:, 0].double().norm())
    print(
        f"{f'streamed_layers, {kind} {positions}':<44} {'ok' if error < TOLERANCE else 'WRONG'}  {error:.1e}",
        flush=True,
    )
    return error < TOLERANCE


def _whole_step_case(family: str, positions: list[int], plan: PersistentPlan | None) -> bool:
    """Logits are those of the CPU; a step that screens the vocabulary, if there is one, chooses the same tokens."""
    model, state = random_model(family, torch.float16), random_state(positions)
    if plan is None:
        raise RuntimeError(f"no plan for {family} {positions}")
    num_tokens, vocab_size = len(positions), len(model.tensors.whole_head)
    there, states = moved(model, "cuda"), moved([state, state], "cuda")
    found = _two_steps(PersistentDecode(there, num_tokens, plan), states[0], vocab_size)
    screened = plan.screened(model.shape, num_tokens, vocab_size, SHARED_LIMIT)
    if screened is not None:
        quantized = moved(screen_head(model.tensors.whole_head, model.tensors.last_norm), "cuda")
        _two_steps(PersistentDecode(there, num_tokens, screened, quantized), states[1], 0)
    expected = _two_steps(PersistentDecode(model, num_tokens, plan), state, vocab_size)
    error = float((found - expected).norm() / expected.norm())
    same = screened is None or torch.equal(*(each.token_ids.cpu() for each in states))
    right = error < TOLERANCE and same
    name = f"persistent_decode, {family} {positions}" + (", clusters" if plan.cluster > 1 else "")
    print(f"{name:<44} {'ok' if right else 'WRONG'}  {error:.1e}", flush=True)
    return right


def _two_steps(decode: PersistentDecode, state: DecodeState, vocab_size: int) -> torch.Tensor:
    """Two steps on the same token, so that both sets of published numbers are met.

    Returns:
        Logits of the first sequence, `[vocab_size]`, float64 on the CPU; nothing of a screened step, whose
        `vocab_size` is 0 here.
    """
    tokens = state.token_ids.clone()
    logits = torch.empty(len(tokens), vocab_size, dtype=torch.float16, device=tokens.device)
    for _ in range(2):
        state.token_ids.copy_(tokens)
        decode(state, logits if vocab_size > 0 else None)
    return logits[0].cpu().double()
