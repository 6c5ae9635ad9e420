"""Tiny models of our own modules with random weights, and engines over them with and without captured steps."""

from typing import Any

import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.layers.attention import Heads
from pagedchat.layers.norms import NormConfig
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.families.opt import POSITION_OFFSET
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.step.model_runner import NativeModelRunner
from pagedchat.runtime.step.sizes import StepSizes
from tests.runtime.drive import eager_of

VOCAB_SIZE, MODEL_LEN, BLOCK_SIZE, MAX_NUM_SEQS = 304, 600, 16, 20


def tiny_model(
    family: str, device: str, dtype: torch.dtype, num_layers: int = 2, ffn_size: int = 512
) -> NativeModel:
    """Of width 256, with heads of 64; rows of the vocabulary are far apart, so that tokens vary.

    "gelu" is an OPT that the fused kernels do not know.
    """
    with torch.device(device):
        torch.set_default_dtype(dtype)
        if family == "llama":
            model = _llama(num_layers, ffn_size)
        else:
            model = _opt(num_layers, ffn_size, "relu" if family == "opt" else family)
        torch.set_default_dtype(torch.float32)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        is_norm = "norm" in name and name.endswith("weight")
        parameter.data.copy_(1 + 0.1 * values if is_norm else values * (1.0 if "embedding" in name else 0.1))
    return model.to(device).eval()  # the angles are worked out on the CPU


def _opt(num_layers: int, ffn_size: int, activation: str) -> NativeModel:
    config = DecoderConfig(
        vocab_size=VOCAB_SIZE, hidden_size=256, ffn_size=ffn_size, num_layers=num_layers, heads=Heads(4, 4, 64),
        max_len=MODEL_LEN, position_offset=POSITION_OFFSET, norm=NormConfig(kind="layer", eps=1e-5, bias=True),
        rotaries=(None,) * num_layers, windows=(None,) * num_layers, qkv_bias=True, out_bias=True,
        activation=activation, gated=False, mlp_bias=True, tied=True,
    )  # fmt: skip
    return Decoder(config)


def _llama(num_layers: int, ffn_size: int) -> NativeModel:
    config = DecoderConfig(
        vocab_size=VOCAB_SIZE, hidden_size=256, ffn_size=ffn_size, num_layers=num_layers, heads=Heads(4, 2, 64),
        max_len=MODEL_LEN, norm=NormConfig(kind="rms", eps=1e-5), activation="silu",
        rotaries=(RotaryConfig(10000.0),) * num_layers, windows=(None,) * num_layers, tied=True,
    )  # fmt: skip
    return Decoder(config)


def make_runner(
    model: NativeModel,
    num_blocks: int,
    *,
    captured: bool,
    num_host_blocks: int = 0,
    max_num_seqs: int = MAX_NUM_SEQS,
    max_num_tokens: int = 0,
) -> Any:
    """A `NativeModelRunner`, or a `CapturedRunner` over one; prefills are captured too if they may have tokens."""
    weight = model.head.weight
    heads = model.layers[0].attention.heads  # type: ignore[index,union-attr]
    shape = CacheShape(
        len(model.layers),
        BLOCK_SIZE,
        heads.num_heads,
        heads.num_kv_heads,
        heads.head_dim,
        weight.dtype,  # type: ignore[arg-type]
    )
    device = torch.device("cuda", 0) if weight.is_cuda else weight.device
    backend = CudaAttention(shape, num_blocks, num_host_blocks, device)
    eager = NativeModelRunner(model, backend, device)
    if not captured:
        return eager
    sizes = StepSizes(max_num_tokens, max_num_seqs, MODEL_LEN)
    prefills = PrefillSteps(model, backend, sizes) if max_num_tokens else None
    return CapturedRunner(eager, DecodeSteps(model, backend, sizes), prefills)


def make_engine(
    runner: NativeModelRunner | CapturedRunner,
    *,
    preemption_mode: str = "recompute",
    max_num_seqs: int = MAX_NUM_SEQS,
    **limits: int,
) -> EngineCore:
    return EngineCore(
        EngineLimits(
            num_blocks=eager_of(runner).backend.num_blocks,
            block_size=BLOCK_SIZE,
            model_len=MODEL_LEN,
            max_num_seqs=max_num_seqs,
            preemption_mode=preemption_mode,  # type: ignore[arg-type]
            reserve_ahead=isinstance(runner, CapturedRunner),
            **limits,
        ),
        runner,
    )


def decoding(seq_id: int, length: int, table: list[int], writable_len: int = 1000) -> ScheduledSequence:
    """A sequence about to compute the last of its tokens."""
    sequence = Sequence(seq_id)
    sequence.token_ids = list(range(length))
    sequence.block_table = table
    sequence.writable_len, sequence.stop_length = writable_len, 1000
    return ScheduledSequence(sequence, length - 1, 1, True)


def chunk(token_ids: list[int], table: list[int], start: int = 0, end: int | None = None) -> ScheduledSequence:
    """A part of a greedy sequence's tokens, up to the last one by default."""
    sequence = Sequence(table[0])
    sequence.token_ids, sequence.block_table = token_ids, table
    sequence.sampling_params = SamplingParams(temperature=0)
    end = len(token_ids) if end is None else end
    return ScheduledSequence(sequence, start, end - start, end == len(token_ids))


def batch_of(*parts: ScheduledSequence) -> SchedulerOutput:
    return SchedulerOutput(1, [*parts], [], sum(part.num_tokens for part in parts))
