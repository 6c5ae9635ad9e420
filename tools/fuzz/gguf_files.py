"""GGUF files: whatever is in them, the model is described, loaded and given its tokenizer, or refused in words."""

import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from pagedchat.errors import DeviceError, ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.gguf.kinds import KINDS
from pagedchat.models.gguf.tokenizer import load_gguf_tokenizer
from pagedchat.models.loader import load_weights
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.target import Target

F32, F16, Q8_0 = 0, 1, 8
_TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(32)), "▁", "a", "b", "ab", "▁a"]
_TYPES = [2, 3, 3, *([6] * 32), 1, 1, 1, 1, 1]
VALUES: dict[str, Any] = {
    "general.architecture": "llama", "general.alignment": 32, "llama.block_count": 1, "llama.context_length": 32,
    "llama.embedding_length": 32, "llama.feed_forward_length": 32, "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 1e4,
    "llama.rope.dimension_count": 16, "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": _TOKENS,
    "tokenizer.ggml.token_type": _TYPES, "tokenizer.ggml.scores": [-float(each) for each in range(len(_TOKENS))],
    "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "{{ bos_token }}",
}  # fmt: skip
"""Of a tiny Llama."""
TENSORS: list[list[Any]] = [
    ["token_embd.weight", [len(_TOKENS), 32], Q8_0], ["output_norm.weight", [32], F32],
    ["blk.0.attn_norm.weight", [32], F32], ["blk.0.ffn_norm.weight", [32], F32],
    ["blk.0.attn_q.weight", [32, 32], F16], ["blk.0.attn_k.weight", [16, 32], 2],
    ["blk.0.attn_v.weight", [16, 32], Q8_0], ["blk.0.attn_output.weight", [32, 32], 7],
    ["blk.0.ffn_gate.weight", [32, 32], 3], ["blk.0.ffn_up.weight", [32, 32], 6],
    ["blk.0.ffn_down.weight", [32, 32], 30],
]  # fmt: skip
"""Name, shape and kind."""
MIXTURE_VALUES: dict[str, Any] = {
    **{name.replace("llama.", "qwen2moe."): value for name, value in VALUES.items()},
    "general.architecture": "qwen2moe", "qwen2moe.expert_count": 3, "qwen2moe.expert_used_count": 2,
    "qwen2moe.expert_feed_forward_length": 64, "qwen2moe.expert_shared_feed_forward_length": 32,
}  # fmt: skip
"""Of a tiny mixture of experts."""
MIXTURE_TENSORS: list[list[Any]] = [
    *(tensor for tensor in TENSORS if ".ffn_" not in tensor[0]), ["output.weight", [len(_TOKENS), 32], Q8_0],
    ["blk.0.ffn_norm.weight", [32], F32], ["blk.0.ffn_gate_inp.weight", [3, 32], F32],
    ["blk.0.ffn_gate_exps.weight", [3, 64, 32], Q8_0], ["blk.0.ffn_up_exps.weight", [3, 64, 32], 2],
    ["blk.0.ffn_down_exps.weight", [3, 32, 64], F16], ["blk.0.ffn_gate_shexp.weight", [32, 32], Q8_0],
    ["blk.0.ffn_up_shexp.weight", [32, 32], F16], ["blk.0.ffn_down_shexp.weight", [32, 32], 2],
    ["blk.0.ffn_gate_inp_shexp.weight", [32], F32],
]  # fmt: skip
MODELS = ((VALUES, TENSORS), (MIXTURE_VALUES, MIXTURE_TENSORS))
"""Values and tensors of each."""
_OTHER_NAMES = (
    "output.weight", "rope_freqs.weight", "token_embd.weight", "blk.0.ffn_gate_up_exps.weight",
    "blk.0.ffn_gate.1.weight", "blk.0.ffn_down_exps.weight", "", "\x00",
)  # fmt: skip
HUGE = (0, 1, 31, 2**31, 2**40, 2**63, 2**64 - 1)
NUMBERS = st.integers(-5, 300) | st.sampled_from(HUGE)


def gguf_bytes(
    values: dict[str, Any],
    tensors: list[list[Any]],
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    order: str = "<",
) -> bytes:
    """A file; of tensors that make no sense, as far as it goes.

    Args:
        values: numbers, texts, flags and lists.
        tensors: name, shape and kind of each; all contents are ones.
        version: that it says it is of.
        counts: of tensors and values, if it lies.
        order: of its bytes, as `struct` has it.
    """
    listed, content = b"", b""
    for name, shape, kind in tensors:
        known = KINDS.get(kind, KINDS[F32])
        elements = 1
        for size in shape:
            elements *= size
        listed += _text(str(name), order) + struct.pack(f"{order}I", len(shape) & 0xFFFFFFFF)
        listed += b"".join(struct.pack(f"{order}Q", size % 2**64) for size in reversed(shape))
        listed += struct.pack(f"{order}IQ", kind % 2**32, len(content))
        taken = elements // known.block_size * known.block_bytes if 0 <= elements < 2**16 else 0
        content += b"\x00\x3c" * (taken // 2 + 1)
        content += bytes(-len(content) % 32)
    body = b"".join(_text(str(name), order) + _value(value, order) for name, value in values.items())
    num_tensors, num_values = counts or (len(tensors), len(values))
    head = b"GGUF" + struct.pack(f"{order}IQQ", version, num_tensors, num_values) + body + listed
    return head + bytes(-len(head) % 32) + content


def _text(text: str, order: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return struct.pack(f"{order}Q", len(encoded)) + encoded


def _value(value: Any, order: str) -> bytes:
    """Its type and itself."""
    if isinstance(value, list):
        kinds = {_kind_of(each) for each in value}
        kind = kinds.pop() if len(kinds) == 1 else 8
        parts = (each if kind != 8 else str(each) for each in value)
        inner = b"".join(_plain(each, kind, order) for each in parts)
        return struct.pack(f"{order}IIQ", 9, kind, len(value)) + inner
    return struct.pack(f"{order}I", _kind_of(value)) + _plain(value, _kind_of(value), order)


def _kind_of(value: Any) -> int:
    if isinstance(value, bool):
        return 7
    if isinstance(value, int):
        return 4 if 0 <= value < 2**32 else 10 if 0 <= value < 2**64 else 11
    return 6 if isinstance(value, float) and abs(value) < 1e30 else 8


def _plain(value: Any, kind: int, order: str) -> bytes:
    if kind == 8:
        return _text(str(value), order)
    form = {4: "I", 6: "f", 7: "?", 10: "Q", 11: "q"}[kind]
    return struct.pack(f"{order}{form}", max(-(2**63), value) if kind == 11 else value)


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    """Values or tensors that make no sense, counts that lie, bytes that were changed, an end that is missing."""
    whole, given = draw(st.sampled_from(MODELS))
    values = draw(bent(whole, NUMBERS)) if draw(st.booleans()) else whole
    tensors = [list(tensor) for tensor in given]
    if draw(st.booleans()):
        tensor = tensors[draw(st.integers(0, len(tensors) - 1))]
        what = draw(st.integers(0, 3))
        if what == 0:
            tensor[0] = draw(st.sampled_from(_OTHER_NAMES))
        elif what == 1:
            shuffled = st.permutations(tensor[1])
            tensor[1] = draw(shuffled | st.lists(NUMBERS.map(abs), max_size=5))
        else:
            tensor[2] = draw(st.integers(0, 45) | st.sampled_from(HUGE))
    values = values if isinstance(values, dict) else whole
    counts = draw(st.none() | st.tuples(any_of(HUGE), any_of(HUGE))) if draw(st.integers(0, 5)) == 0 else None
    version = draw(st.sampled_from([3] * 8 + [0, 1, 2, 4, 2**24, 2**32 - 1]))
    data = bytearray(gguf_bytes(values, tensors, version=version, counts=counts))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 4)) == 0 else data)


def _use(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        path.write_bytes(data)
        in_words(lambda: load_gguf_tokenizer("m", path).tokenizer.encode("a b <s>"))
        in_words(lambda: load(path))


def load(path: Path) -> None:
    """Describe the model and read its weights."""
    description = describe_model("m", path)
    load_weights(description, attention="", dtype=torch.float32, device=torch.device("cpu"))


def in_words(use: Callable[[], object]) -> None:
    """Do it; what is refused has a sentence and a hint."""
    try:
        use()
    except (ModelError, DeviceError) as error:
        assert error.message
        assert error.hint


TARGETS = (Target("gguf files", _files(), _use),)
