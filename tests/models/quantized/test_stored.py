"""Checkpoints in GPTQ, AWQ, compressed-tensors and fp8: the tokens of the weights that their few bits stand for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagedchat import LLM, SamplingParams
from pagedchat.errors import ModelError
from pagedchat.layers.quantized_experts import QuantizedExperts
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
from pagedchat.models.quantized.packing import Packing
from pagedchat.models.quantized.unpacking import unpacked
from pagedchat.ops.quantized.weight import QuantizedWeight
from tests.helpers_models import OF_8_BITS, check_greedy
from tests.models.families.tiny_families import save, save_tiny, wide_model

PROMPTS = [[(11 * i) % 90 + 3 for i in range(length)] for length in (3, 20, 37)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
GROUP = 16
Packed = tuple[dict[str, torch.Tensor], torch.Tensor]
"""Tensors by the last part of their names, and the weight that they stand for."""


def in_steps(weight: torch.Tensor, bits: int, *, zeros: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Digits from 0 on `[out, in]`, scales and zeros `[out, groups]`."""
    groups, most = weight.view(len(weight), -1, GROUP), 2**bits - 1
    low, high = groups.amin(2), groups.amax(2)
    if zeros:
        scales = ((high - low) / most).half().float()
        zero = (-low / scales).round().clamp(0, most)
    else:
        scales = (groups.abs().amax(2) / (2 ** (bits - 1) - 1)).half().float()
        zero = torch.full_like(scales, 2 ** (bits - 1))
    digits = (groups / scales.unsqueeze(2)).round() + zero.unsqueeze(2)
    return digits.clamp(0, most).flatten(1).long(), scales, zero.long()


def meaning(digits: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    groups = digits.view(len(digits), scales.shape[1], -1) - zeros.unsqueeze(2)
    return (groups * scales.unsqueeze(2)).flatten(1)


def in_words(numbers: torch.Tensor, bits: int, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """`[n, m]` -> `[n, m * bits / 32]` int32, one number after the other by plain arithmetic."""
    many = 32 // bits
    words = torch.zeros(len(numbers), numbers.shape[1] // many, dtype=torch.int64)
    for place in range(many):
        words |= numbers[:, (order[place] if bits == 4 else place) :: many] << (bits * place)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def gptq(weight: torch.Tensor, bits: int = 4, *, less: int = 1, zeros: bool = True) -> Packed:
    digits, scales, zero = in_steps(weight, bits, zeros=zeros)
    zero = zero.clamp(min=less)
    return {
        "qweight": in_words(digits, bits).T,
        "qzeros": in_words(zero.T - less, bits),
        "scales": scales.T.half(),
        "g_idx": (torch.arange(weight.shape[1]) // GROUP).int(),
    }, meaning(digits, scales, zero)


def awq(weight: torch.Tensor) -> Packed:
    digits, scales, zero = in_steps(weight, 4, zeros=True)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    parts = {"qweight": in_words(digits.T, 4, order), "qzeros": in_words(zero.T, 4, order)}
    return parts | {"scales": scales.T.half()}, meaning(digits, scales, zero)


def packed(weight: torch.Tensor, bits: int, *, zeros: bool) -> Packed:
    digits, scales, zero = in_steps(weight, bits, zeros=zeros)
    parts = {"weight_packed": in_words(digits, bits), "weight_scale": scales.half()}
    parts["weight_shape"] = torch.tensor(weight.shape)
    if zeros:
        parts["weight_zero_point"] = in_words(zero.T, bits).T
    return parts, meaning(digits, scales, zero)


def integers(weight: torch.Tensor) -> Packed:
    scales = (weight.abs().amax(1, keepdim=True) / 127).half().float()
    digits = (weight / scales).round().clamp(-128, 127)
    return {"weight": digits.to(torch.int8), "weight_scale": scales.bfloat16()}, digits * scales.bfloat16().float()


def floats(weight: torch.Tensor, how: str) -> Packed:
    count = {"row": (len(weight), 1), "one": (1,), "square": (1, 1)}[how]
    largest = weight.abs().amax(1, keepdim=True) if how == "row" else weight.abs().max().expand(count)
    scales = (largest / 448).float().clone()
    digits = (weight / scales).to(torch.float8_e4m3fn)
    name = "weight_scale_inv" if how == "square" else "weight_scale"
    return {"weight": digits, name: scales, "input_scale": torch.ones(1)}, digits.float() * scales


def compressed(form: str, kind: str, bits: int) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": {"type": kind, "num_bits": bits}}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


KINDS: dict[str, tuple[dict[str, Any], Callable[[torch.Tensor], Packed], str]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}, gptq, "GPTQ int4"),
    "gptq_middle": ({"quant_method": "gptq", "bits": 4}, lambda w: gptq(w, zeros=False), "GPTQ int4"),
    "gptq_8": ({"quant_method": "gptq", "bits": 8}, lambda w: gptq(w, 8), "GPTQ int8"),
    "gptq_v2": (
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, lambda w: gptq(w, less=0), "GPTQ int4",
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}, awq, "AWQ int4"),
    "packed": (compressed("pack-quantized", "int", 4), lambda w: packed(w, 4, zeros=False), "compressed int4"),
    "packed_zeros": (compressed("pack-quantized", "int", 4), lambda w: packed(w, 4, zeros=True), "compressed int4"),
    "packed_8": (compressed("pack-quantized", "int", 8), lambda w: packed(w, 8, zeros=True), "compressed int8"),
    "integers": (compressed("int-quantized", "int", 8), integers, "compressed int8"),
    "fp8_row": (compressed("float-quantized", "float", 8), lambda w: floats(w, "row"), "fp8"),
    "fp8_one": ({"quant_method": "fp8"}, lambda w: floats(w, "one"), "fp8"),
    "fp8_square": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda w: floats(w, "square"), "fp8"),
}  # fmt: skip


def save_stored(folder: Path, kind: str, plain: Path | None = None) -> tuple[Path, Path]:
    """The checkpoint in few bits, and the one with the weights that they stand for; of `plain` or a tiny one."""
    config, make, _ = KINDS[kind]
    plain = save_tiny(folder / "plain", "llama") if plain is None else plain
    stored, meant = {}, {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            parts, meant[name] = make(tensor)
            stem = name.removesuffix(".weight")
            stored |= {f"{stem}.{part}": each.contiguous() for part, each in parts.items()}
        else:
            stored[name] = meant[name] = tensor
    values = json.loads((plain / "config.json").read_text())
    for name, tensors, added in (("stored", stored, {"quantization_config": config}), ("meant", meant, {})):
        (folder / name).mkdir()
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
        (folder / name / "config.json").write_text(json.dumps(values | added))
    return folder / "stored", folder / "meant"


def logits(folder: Path) -> torch.Tensor:
    from pagedchat.runtime.attention.dense import DenseAttention

    description = describe_model("m", folder)
    model = load_weights(description, attention="", dtype=torch.float32, device=torch.device("cpu"))
    places = torch.arange(len(PROMPTS[2]))
    with torch.inference_mode():
        said: torch.Tensor = model(torch.tensor(PROMPTS[2]), places, DenseAttention(), places)
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_what_is_meant(kind: str, tmp_path: Path) -> None:
    stored, meant = save_stored(tmp_path, kind)
    llm = LLM(str(stored), device="cpu", num_blocks=64, block_size=4, skip_tokenizer_init=True)
    assert llm.info.quantization == KINDS[kind][2]
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    if not kind.startswith("fp8"):
        check_greedy(meant, PROMPTS, [output.outputs[0].token_ids for output in outputs], OF_8_BITS)
    ours, theirs, whole = logits(stored), logits(meant), logits(tmp_path / "plain")
    # 8-bit floats are quantised once more, which costs less than they have cost already.
    allowed = 0.5 * (theirs - whole).norm() if kind.startswith("fp8") else 2e-3 * theirs.norm()
    assert (ours - theirs).norm() <= allowed


def save_mixture(folder: Path) -> Path:
    """A Qwen3-MoE whose experts have three tensors each, as people have them in few bits."""
    plain = save(folder, wide_model("qwen3_moe"))
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        layer, merged, last = name.partition(".mlp.experts.")
        if not merged or tensor.dim() != 3:
            tensors[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            parts = {"down_proj": matrix}
            if last == "gate_up_proj":
                parts = dict(zip(("gate_proj", "up_proj"), matrix.chunk(2), strict=True))
            tensors |= {f"{layer}{merged}{expert}.{part}.weight": rows.clone() for part, rows in parts.items()}
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    return plain


@pytest.mark.parametrize("kind", ["gptq", "awq", "packed_8", "integers"])
def test_experts_keep_their_few_bits(kind: str, tmp_path: Path) -> None:
    stored, meant = save_stored(tmp_path, kind, save_mixture(tmp_path / "plain"))
    model = load_weights(describe_model("m", stored), attention="", dtype=torch.float32, device=torch.device("cpu"))
    experts = [module for module in model.modules() if isinstance(module, QuantizedExperts)]
    assert len(experts) == 3
    linears = [linear for each in experts for weight in each.separate for linear in weight.linears]
    assert len(linears) == 3 * 2 * 7
    assert all(isinstance(part, QuantizedWeight) for linear in linears for part in linear.parts)
    ours, theirs, whole = logits(stored), logits(meant), logits(tmp_path / "plain")
    assert (ours - theirs).norm() <= 2e-3 * theirs.norm() < 0.5 * (theirs - whole).norm()
    llm = LLM(str(stored), device="cpu", num_blocks=64, block_size=4, skip_tokenizer_init=True)
    assert llm.info.quantization == KINDS[kind][2]
    outputs = llm.generate([{"prompt_token_ids": PROMPTS[0]}], GREEDY, use_tqdm=False)
    assert len(outputs[0].outputs[0].token_ids) == 12


@pytest.mark.parametrize("kind", ["fp8_row", "fp8_one", "fp8_square"])
def test_8_bit_floats_are_exact_where_they_become_floats(kind: str) -> None:
    parts, meant = KINDS[kind][1](torch.randn(48, 32))
    given = iter([(f"a.{part}", tensor) for part, tensor in parts.items()])
    [(name, found)] = unpacked("m", Packing("fp8", "floats"), given, floats_as="floats")
    assert name == "a.weight"
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, meant)


def test_squares_that_are_cut_off() -> None:
    digits, scales = torch.ones(200, 300).to(torch.float8_e4m3fn), torch.arange(1.0, 7.0).view(2, 3)
    given = iter([("a.weight", digits), ("a.weight_scale_inv", scales)])
    [(_, found)] = unpacked("m", Packing("fp8", "floats"), given, floats_as="floats")
    assert isinstance(found, torch.Tensor)
    assert found[127::72, 127::86].tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["gptq", "awq", "integers", "fp8_one"])
def test_on_a_gpu(kind: str, tmp_path: Path) -> None:
    stored, meant = save_stored(tmp_path, kind)
    llm = LLM(str(stored), device="cuda", dtype="float32", num_blocks=64, skip_tokenizer_init=True)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], GREEDY, use_tqdm=False)
    check_greedy(meant, PROMPTS, [output.outputs[0].token_ids for output in outputs])


def test_a_missing_scale_is_named(tmp_path: Path) -> None:
    stored, _ = save_stored(tmp_path, "gptq")
    tensors = load_file(stored / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.scales"]
    save_file(tensors, stored / "model.safetensors")
    with pytest.raises(
        ModelError, match=r"lack model.layers.1.mlp.up_proj.scales, without which its few bits mean"
    ):
        logits(stored)


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    stored, _ = save_stored(tmp_path, "gptq")
    tensors = load_file(stored / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.g_idx"] = tensors["model.layers.1.mlp.up_proj.g_idx"].flip(0)
    save_file(tensors, stored / "model.safetensors")
    with pytest.raises(ModelError, match=r"columns of model.layers.1.mlp.up_proj .*desc_act\), which is not read"):
        logits(stored)


@pytest.mark.parametrize(
    ("part", "wrong", "words"),
    [
        ("scales", torch.ones(2, 5).half(), "scales are"),
        ("scales", torch.full((2, 48), torch.inf).half(), "not finite"),
        ("qweight", torch.ones(4, 48).half(), "packed numbers are 2-dimensional torch.float16"),
        ("qzeros", torch.ones(7, 6).int(), "zeros are"),
    ],
)
def test_parts_that_do_not_go_together(part: str, wrong: torch.Tensor, words: str, tmp_path: Path) -> None:
    stored, _ = save_stored(tmp_path, "gptq")
    tensors = load_file(stored / "model.safetensors")
    tensors[f"model.layers.1.mlp.up_proj.{part}"] = wrong
    save_file(tensors, stored / "model.safetensors")
    with pytest.raises(ModelError, match=words):
        logits(stored)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "gptq", "bits": 3}, "GPTQ in 3 bits"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "GPTQ as 'marlin'"),
        ({"quant_method": "awq", "bits": 8}, "AWQ in 8 bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "AWQ of the version 'gemv'"),
        (compressed("marlin-24", "int", 4), "compressed-tensors as 'marlin-24', int of 4 bits"),
        (compressed("pack-quantized", "int", 3), "int of 3 bits"),
        ({"quant_method": "compressed-tensors"}, "without config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 5}}, "none of no bits"),
    ],
)
def test_what_is_not_read_is_said(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    checkpoint = save_tiny(tmp_path, "llama")
    values = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(values | {"quantization_config": config}))
    with pytest.raises(ModelError) as caught:
        describe_model("m", checkpoint)
    assert words in caught.value.message
    assert "--quantize int4" in caught.value.hint
