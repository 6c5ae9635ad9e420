"""GGUF files of mixtures of experts that are not what they should be: one sentence each, and what to do."""

from pathlib import Path
from typing import Any

import pytest

from pagedchat.errors import ModelError
from pagedchat.models.config import describe_model
from pagedchat.models.gguf.header import read_header
from tests.models.gguf.test_header import load, written
from tools.fuzz.gguf_files import F16, MIXTURE_TENSORS, MIXTURE_VALUES, Q8_0, TENSORS, VALUES, gguf_bytes

GATES, UP, DOWN = (f"blk.0.ffn_{product}_exps.weight" for product in ("gate", "up", "down"))


def with_values(**changes: Any) -> dict[str, Any]:
    """None: it is left out."""
    changed = MIXTURE_VALUES | {f"qwen2moe.{name}": value for name, value in changes.items()}
    return {name: value for name, value in changed.items() if value is not None}


def with_tensor(name: str, other: list[Any] | None) -> list[list[Any]]:
    """Another shape and kind, or none."""
    others = [tensor for tensor in MIXTURE_TENSORS if tensor[0] != name]
    return others if other is None else [*others, [name, *other]]


def message(folder: Path, values: dict[str, Any], tensors: list[list[Any]]) -> str:
    with pytest.raises(ModelError) as caught:
        load(written(folder, gguf_bytes(values, tensors)))
    assert caught.value.hint
    return caught.value.message


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, gguf_bytes(MIXTURE_VALUES, MIXTURE_TENSORS))
    load(file)
    described = describe_model("m", file).native
    assert described is not None
    assert described.mixture is not None
    assert described.mixture.num_experts == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"expert_used_count": 4}, "a token of it has 4 of 3 experts"),
        ({"expert_used_count": 0}, "its num_experts_per_tok is 0"),
        ({"expert_used_count": None}, "it has no expert_used_count"),
        ({"expert_count": 4}, "its expert_count is 4, and its first router knows 3"),
        ({"expert_count": 2**31}, "num_experts is 2147483648"),
        ({"expert_count": "x"}, "its num_experts is 'x'"),
        ({"expert_count": 0}, "it has no expert_count"),
        ({"expert_count": None}, "it has no expert_count"),
        ({"expert_weights_scale": 2.5}, "it multiplies what its experts give by 2.5"),
        ({"expert_gating_func": 2}, "it gives experts other weights than those of a softmax"),
        ({"expert_group_count": 4}, "its experts are in groups"),
        ({"leading_dense_block_count": 1}, "not in all of its layers"),
        ({"block_count": 4000}, "tensors for 4000 layers"),
        ({"block_count": 2}, "lack blk.1."),
        (
            {"expert_feed_forward_length": 32},
            "other shapes than its config says: blk.0.ffn_down.0.weight and 4 more",
        ),
        (
            {"expert_shared_feed_forward_length": 64},
            "other shapes than its config says: blk.0.ffn_down_shexp.weight",
        ),
    ],
)
def test_values(values: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in message(tmp_path, with_values(**values), MIXTURE_TENSORS)


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        (GATES, None, "lack blk.0.ffn_gate.0.weight and 2 more"),
        ("blk.0.ffn_gate_inp.weight", None, "lack blk.0.ffn_gate_inp.weight"),
        ("blk.0.ffn_gate_inp_shexp.weight", None, "lack blk.0.ffn_gate_inp_shexp.weight"),
        (GATES, [[2, 64, 32], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[4, 64, 32], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[64, 3, 32], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[3, 32, 32], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[191, 32], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[6144], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[1, 3, 64, 32], Q8_0], f"other shapes than its config says: {GATES}"),
        (GATES, [[64, 3, 32], F16], f"other shapes than its config says: {GATES}"),
        (GATES, [[192, 1, 32], F16], f"other shapes than its config says: {GATES}"),
        (UP, [[3, 64, 64], 2], "other shapes than its config says: blk.0.ffn_up.0.weight and 2 more"),
        (DOWN, [[3, 32, 32], F16], "other shapes than its config says: blk.0.ffn_down.0.weight and 2 more"),
        ("blk.0.attn_q.weight", [[1, 32, 32], Q8_0], "other shapes than its config says: blk.0.attn_q.weight"),
        ("output.weight", [[1, 40, 32], Q8_0], "other shapes than its config says: output.weight"),
        ("blk.0.ffn_gate_inp_shexp.weight", [[31], 0], "config says: blk.0.ffn_gate_inp_shexp.weight"),
    ],
)
def test_tensors(name: str, other: list[Any] | None, words: str, tmp_path: Path) -> None:
    assert words in message(tmp_path, MIXTURE_VALUES, with_tensor(name, other))


def test_scales_that_are_none(tmp_path: Path) -> None:
    """In the last expert."""
    data = bytearray(gguf_bytes(MIXTURE_VALUES, MIXTURE_TENSORS))
    path = written(tmp_path, bytes(data))
    gates = next(tensor for tensor in read_header(path).tensors if tensor.name == GATES)
    last = gates.start + gates.num_bytes - 34
    data[last : last + 2] = b"\x00\x7c"
    with pytest.raises(ModelError, match=r"damaged: in blk\.0\.ffn_gate_exps\.weight, it has scales that are not"):
        load(written(tmp_path, bytes(data)))


def test_an_architecture_without_experts_has_none(tmp_path: Path) -> None:
    values = {name.replace("llama.", "qwen2."): value for name, value in VALUES.items()}
    values |= {"general.architecture": "qwen2", "qwen2.expert_count": 3}
    assert "a mixture of experts of the architecture qwen2" in message(tmp_path, values, TENSORS)


def test_a_llama_with_experts_lacks_them(tmp_path: Path) -> None:
    values = VALUES | {"llama.expert_count": 3, "llama.expert_used_count": 2}
    assert "lack blk.0.ffn_down.0.weight" in message(tmp_path, values, TENSORS)
