"""Whole steps on a CPU under a crowd of chats that are forked, cut back, stopped, closed, preempted and found
again: what was chosen, and what comes next, is what a fresh pass without any cache says, by torch.

No slot that is stale, or another chat's, is ever read: of such a one the logits are off by all of them.
"""

from collections import Counter
from pathlib import Path

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits, PreemptionMode
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.layers.by_torch import by_torch
from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.decoder import Decoder
from pagedchat.models.loader import load_weights
from pagedchat.models.quantized.forms import Quantization
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.dense import DenseAttention
from pagedchat.runtime.attention.torch_backend import TorchAttention
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.cpu.step import CpuStep
from pagedchat.runtime.step.batch_inputs import flatten
from tests.models.families.tiny_families import WIDE_VOCAB_SIZE, random_model, save, wide_config
from tests.runtime.graphs.random_walk import RandomWalk

CPU = torch.device("cpu")
NUM_BLOCKS, NUM_HOST_BLOCKS, BLOCK_SIZE, MODEL_LEN, MOST_CHATS = 100, 200, 4, 256, 16
CROWDS = [(1, 15), (4, 20), (8, 20), (16, 30)]
"""Chats under way and steps."""
CASES: list[tuple[str, Quantization | None, PreemptionMode, float]] = [
    ("llama", None, "swap", 1e-3), ("opt", None, "recompute", 1e-3),
    ("qwen2", "int8", "recompute", 0.1), ("opt", "int4", "swap", 0.1),
]  # fmt: skip
"""Family, form, what becomes of who is preempted, how far logits may be off: with few bits inputs are rounded."""


def runner_for(folder: Path, quantization: Quantization | None) -> CpuModelRunner:
    model = load_weights(
        describe_model("wide", folder), attention="", dtype=torch.float32, device=CPU, quantization=quantization
    )
    assert isinstance(model, Decoder)
    use_cpu_linears(model, available=0)
    heads = model.config.heads
    shape = CacheShape(
        model.config.num_layers, BLOCK_SIZE, heads.num_heads, heads.num_kv_heads, heads.head_dim, torch.float32
    )
    backend = TorchAttention(shape, NUM_BLOCKS, NUM_HOST_BLOCKS, CPU)
    backend.prepare_swapping()
    return CpuModelRunner(model, backend, CPU)


def fresh_logits(runner: CpuModelRunner, token_ids: list[int]) -> torch.Tensor:
    """After each token: `[length, vocab_size]`."""
    places = torch.arange(len(token_ids))
    with by_torch(runner.model):
        logits: torch.Tensor = runner.model(torch.tensor(token_ids), places, DenseAttention(), places)
    return logits.float()


def next_logits(runner: CpuModelRunner, sequences: list[Sequence]) -> torch.Tensor:
    """The last computed token of each once more, in one step: `[len(sequences), vocab_size]`."""
    parts = []
    for sequence in sequences:
        same = Sequence(sequence.seq_id)
        same.token_ids, same.block_table = sequence.token_ids[: sequence.num_computed], list(sequence.block_table)
        same.sampling_params, same.stop_length = SamplingParams(temperature=0), 10_000
        parts.append(ScheduledSequence(same, sequence.num_computed - 1, 1, True))
    return runner.forward(flatten(parts, BLOCK_SIZE, CPU)).float()


@torch.inference_mode()
@pytest.mark.parametrize(("family", "quantization", "mode", "room"), CASES)
def test_no_slot_that_is_stale_or_foreign_is_read(
    family: str,
    quantization: Quantization | None,
    mode: PreemptionMode,
    room: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if cpu_kernels() is None:
        pytest.skip("no CPU kernels")
    rows: Counter[int] = Counter()
    run = CpuStep.run
    monkeypatch.setattr(CpuStep, "run", lambda *args: (rows.update([len(args[1])]), run(*args))[1])
    config = wide_config(family)
    config.max_position_embeddings = MODEL_LEN
    runner = runner_for(save(tmp_path, random_model(family, config, 0.15)), quantization)
    core = EngineCore(
        EngineLimits(
            num_blocks=NUM_BLOCKS, num_host_blocks=NUM_HOST_BLOCKS, block_size=BLOCK_SIZE, model_len=MODEL_LEN,
            max_num_seqs=MOST_CHATS, max_num_batched_tokens=96, preemption_mode=mode,
        ),
        runner,
    )  # fmt: skip
    walk = RandomWalk(core, CASES.index((family, quantization, mode, room)), WIDE_VOCAB_SIZE)
    for size, num_steps in CROWDS:
        walk.crowd(size, num_steps)
        here = []
        for sequence in walk.finish():
            fresh = fresh_logits(runner, sequence.token_ids)
            limit = room * float(fresh.abs().max())
            for place in walk.chosen(sequence.seq_id):
                before = fresh[place - 1]
                assert float(before.max() - before[sequence.token_ids[place]]) <= limit, f"{place} of {sequence}"
            if sequence.block_table and sequence.num_computed > 1:
                here.append((sequence, fresh[sequence.num_computed - 1]))
        assert here
        for count in (1, 3, 8, 16):
            some = here[:count]
            for row, (sequence, expected) in zip(
                next_logits(runner, [each for each, _ in some]), some, strict=True
            ):
                error = float((row - expected).norm() / expected.norm())
                assert error <= room, f"logits of {sequence} are off by {error:.3g}"
    stats = core.stats()
    assert {1, 4, 8} <= rows.keys()
    assert max(rows) == MOST_CHATS
    assert min(walk.did[what] for what in ("fork", "cut_back", "stop", "close")) > 0
    assert min(stats.preemptions, stats.prefix_hits, stats.copies) > 0
    assert (stats.swaps_out > 0) == (mode == "swap")
