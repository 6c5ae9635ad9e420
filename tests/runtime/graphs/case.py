"""Tiny models of our own modules with random weights, and engines over them with and without captured steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.layers.alibi import Alibi
from pagedchat.layers.attention import Heads
from pagedchat.layers.experts import Gate, MixtureConfig
from pagedchat.layers.norms import NormConfig
from pagedchat.layers.rotary_frequencies import RotaryConfig, YarnScaling
from pagedchat.models.decoder import Decoder
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.opt import POSITION_OFFSET
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.graphs.workshop import Workshop
from pagedchat.runtime.step.model_runner import NativeModelRunner
from pagedchat.runtime.step.sizes import StepSizes
from tests.runtime.drive import eager_of

VOCAB_SIZE, MODEL_LEN, BLOCK_SIZE, MAX_NUM_SEQS = 304, 600, 16, 20
LATE = 1e9
"""Seconds on a workshop's clock at which every piece has waited for long, and so may take what it likes."""
_RMS, _LAYER = NormConfig(kind="rms", eps=1e-5), NormConfig(kind="layer", eps=1e-5, bias=True)
_ROTARY = RotaryConfig(10000.0)
_SCALED = RotaryConfig(10000.0, scaling=YarnScaling(4.0, 32.0, 1.0, 64), scale=1.3)
_PLAIN: dict[str, Any] = {"activation": "gelu_new", "gated": False, "mlp_bias": True}
DESCRIBED: dict[str, dict[str, Any]] = {
    "gemma2": {
        "norm": NormConfig(kind="rms", eps=1e-6, offset=1.0), "norm_places": "around", "windows": (20, None),
        "embedding_scale": 1.3, "rounds_embedding_scale": True, "activation": "gelu_pytorch_tanh",
        "score_scale": 0.1, "score_cap": 5.0, "logits_cap": 30.0,
    },
    "gemma3": {
        "norm_places": "around", "windows": (20, None), "rotaries": (_ROTARY, RotaryConfig(1e6, factor=8.0)),
        "qk_norm": QkNorm(_RMS),
    },
    "gpt_neox": {
        "norm": _LAYER, "parallel": "two norms", "rotaries": (replace(_ROTARY, share=0.25),) * 2, "qkv_bias": True,
        **_PLAIN,
    },
    "phi": {
        "norm": _LAYER, "parallel": "one norm", "rotaries": (replace(_ROTARY, share=0.5),) * 2, "out_bias": True,
        "tied": False, "head_bias": True, **_PLAIN,
    },
    "olmo2": {
        "norm": replace(_RMS, exact=True), "norm_places": "behind", "qk_norm": QkNorm(_RMS, "width"),
        "rotaries": (replace(_ROTARY, exact=True),) * 2,
    },
    "cohere2": {
        "norm": replace(_LAYER, bias=False), "parallel": "one norm", "windows": (20, None), "logits_scale": 0.3,
        "rotaries": (_ROTARY, None), "qk_norm": QkNorm(replace(_LAYER, bias=False), "each head"),
    },
    "bloom": {
        "norm": _LAYER, "embedding_norm": True, "rotaries": (None, None), "alibi": Alibi(), "qkv_bias": True,
        "out_bias": True, **_PLAIN,
    },
    "sinks": {"windows": (20, None), "sinks": True, "qkv_bias": True},
    "all_experts": {
        "mixture": MixtureConfig(
            num_experts=3, per_token=3, width=96, renormalised=False, shared_width=160, gated_share=True
        ),
        "sparse": (True, True),
    },
}  # fmt: skip
"""Decoders of two layers: what they differ in from a Llama."""
MIXTURES: dict[str, dict[str, Any]] = {
    "few_experts": {
        "mixture": MixtureConfig(num_experts=8, per_token=2, width=96, renormalised=True), "sparse": (True, True),
    },
    "many_experts": {
        "mixture": MixtureConfig(num_experts=40, per_token=4, width=64, renormalised=False),
        "sparse": (False, True),
    },
    "bounded_experts": {
        "mixture": MixtureConfig(
            num_experts=8, per_token=3, width=64, renormalised=True, biases=True,
            gate=Gate(limit=0.3, sharpness=1.7),
        ),
        "sparse": (True, True), "sinks": True, "windows": (20, None), "qkv_bias": True, "out_bias": True,
        "norm": replace(_RMS, exact=True), "rotaries": (_SCALED, _SCALED),
    },
}  # fmt: skip
"""The same in float32 alone: in 16 bits rounding gives a token other experts now and then."""


def tiny_model(
    family: str, device: str, dtype: torch.dtype, num_layers: int = 2, ffn_size: int = 512
) -> NativeModel:
    """Of width 256, with heads of 64; rows of the vocabulary are far apart, so that tokens vary.

    "qwen3" is a Llama that norms queries and keys, "biased" one whose products have biases, gates too.
    "gelu" is an OPT that no whole step does, and so are those in `DESCRIBED`, of two layers each; "odd" has norms
    that no kernel does.
    """
    return described_model(_config(family, num_layers, ffn_size), device, dtype)


def described_model(config: DecoderConfig, device: str, dtype: torch.dtype) -> NativeModel:
    """A decoder with random weights."""
    with torch.device(device):
        torch.set_default_dtype(dtype)
        model = Decoder(config)
        torch.set_default_dtype(torch.float32)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        is_norm = "norm" in name and name.endswith("weight")
        parameter.data.copy_(1 + 0.1 * values if is_norm else values * (1.0 if "embedding" in name else 0.1))
    return model.to(device).eval()  # the angles are worked out on the CPU


def _config(family: str, num_layers: int, ffn_size: int) -> DecoderConfig:
    rotaries, windows = (_ROTARY,) * num_layers, (None,) * num_layers
    llama = DecoderConfig(
        vocab_size=VOCAB_SIZE, hidden_size=256, ffn_size=ffn_size, num_layers=num_layers, heads=Heads(4, 2, 64),
        max_len=MODEL_LEN, norm=_RMS, rotaries=rotaries, windows=windows, activation="silu", tied=True,
    )  # fmt: skip
    changed: dict[str, dict[str, Any]] = DESCRIBED | MIXTURES | {
        "llama": {}, "qwen3": {"qk_norm": QkNorm(_RMS)}, "odd": {"norm": replace(_RMS, offset=2.0)},
        "biased": {"qkv_bias": True, "out_bias": True, "mlp_bias": True},
        "llama_scaled": {"rotaries": (_SCALED,) * num_layers},
    }  # fmt: skip
    if family in changed:
        return replace(llama, **changed[family])
    return replace(
        llama, heads=Heads(4, 4, 64), position_offset=POSITION_OFFSET, norm=_LAYER, rotaries=(None,) * num_layers,
        qkv_bias=True, out_bias=True, activation="relu" if family == "opt" else family, gated=False, mlp_bias=True,
    )  # fmt: skip


def make_runner(
    model: NativeModel,
    num_blocks: int,
    *,
    captured: bool,
    num_host_blocks: int = 0,
    max_num_seqs: int = MAX_NUM_SEQS,
    max_num_tokens: int = 0,
    clock: Callable[[], float] | None = None,
    batch_invariant: bool = False,
    kind: CacheKind | None = None,
) -> Any:
    """A `NativeModelRunner`, or a `CapturedRunner` over one; prefills are captured too if they may have tokens.

    With a clock nothing is captured at first use, but beside what serves meanwhile, as time allows.
    """
    weight = next(model.parameters())
    heads = model.layers[0].attention.heads  # type: ignore[index,union-attr]
    shape = CacheShape(
        len(model.layers),
        BLOCK_SIZE,
        heads.num_heads,
        heads.num_kv_heads,
        heads.head_dim,
        weight.dtype,  # type: ignore[arg-type]
        kind,
    )
    device = torch.device("cuda", 0) if weight.is_cuda else weight.device
    backend = CudaAttention(shape, num_blocks, num_host_blocks, device, batch_invariant=batch_invariant)
    eager = NativeModelRunner(model, backend, device)
    if not captured:
        return eager
    sizes = StepSizes(max_num_tokens, max_num_seqs, MODEL_LEN)
    now = clock is None
    prefills = PrefillSteps(model, backend, sizes, at_first_use=now) if max_num_tokens else None
    decodes = DecodeSteps(model, backend, sizes, at_first_use=now)
    shelves = decodes.shelves if prefills is None else [*decodes.shelves, prefills.store]
    return CapturedRunner(eager, decodes, prefills, None if clock is None else Workshop(shelves, clock))


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
