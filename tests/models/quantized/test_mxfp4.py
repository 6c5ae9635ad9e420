"""Weights in MXFP4: what they mean, and checkpoints that have them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from pagedchat.errors import ModelError
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.few_bits_linear import settle
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
from pagedchat.models.native_model import NativeModel
from pagedchat.models.quantized.mxfp4 import Packed, PackedExpert, unpack, with_packed
from pagedchat.ops.experts.stacked_weight import StackedWeight
from tests.models.families.tiny_families import CONFIGS, random_model, save
from tests.ops.paged_case import DEVICES

NAMES = ("gate_up_proj", "down_proj")


def random_packed(*shape: int) -> Packed:
    """Of `[..., columns / 32]` blocks, all bytes and exponents around zero."""
    return Packed(
        torch.randint(0, 256, (*shape, 16), dtype=torch.uint8), torch.randint(97, 150, shape, dtype=torch.uint8)
    )


def test_each_byte_is_two_numbers_of_four_bits() -> None:
    blocks = torch.tensor([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] * 2, dtype=torch.uint8)
    numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    signed = torch.tensor([*numbers, *(-each for each in numbers)] * 2)
    for exponent in (-1, 0, 5):
        found = unpack(blocks[None], torch.tensor([127 + exponent], dtype=torch.uint8))
        assert torch.equal(found, signed * 2.0**exponent)


def test_the_smallest_and_the_largest_scale_are_exact() -> None:
    blocks = torch.full((3, 16), 0x22, dtype=torch.uint8)  # ones
    found = unpack(blocks, torch.tensor([0, 254, 255], dtype=torch.uint8)).view(3, 32)
    assert torch.equal(found[:2].double(), torch.tensor([[2.0**-127], [2.0**127]]).double().expand(2, 32))
    assert found[2].isnan().all()


def test_numbers_are_those_of_transformers_and_exact_in_bfloat16() -> None:
    blocks, scales = random_packed(3, 10, 4)
    found = unpack(blocks, scales)
    assert torch.equal(found.bfloat16().float(), found)
    theirs = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)  # [experts, columns, rows]
    assert torch.equal(found.transpose(1, 2), theirs.float())


def test_blocks_and_scales_come_together_wherever_they_are() -> None:
    blocks, scales = random_packed(1, 2, 3)
    other = torch.zeros(1)
    found = list(
        with_packed(iter([("a_scales", scales), ("b", other), ("c_blocks", blocks), ("a_blocks", blocks)]))
    )
    assert [name for name, _ in found] == ["b", "a"]
    assert found[0][1] is other
    assert isinstance(found[1][1], Packed)
    assert found[1][1].blocks is blocks
    assert found[1][1].scales is scales


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Tiny, whose experts are numbers that MXFP4 has."""
    sizes = CONFIGS["gpt_oss"].to_dict() | {"hidden_size": 64, "intermediate_size": 32}
    config = GptOssConfig(**{name: value for name, value in sizes.items() if name != "model_type"})
    return save(tmp_path / "plain", random_model("gpt_oss", config, 0.3))


def as_packed(plain: Path, folder: Path) -> dict[str, torch.Tensor]:
    """Overwrite the experts of a checkpoint with random ones, and save the same in MXFP4 as the hub has it."""
    folder.mkdir()
    tensors = load_file(plain / "model.safetensors")
    stored = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith(NAMES):
            num_experts, columns, rows = tensor.shape
            packed = random_packed(num_experts, rows, columns // 32)
            packed.scales.fill_(124)
            del stored[name]
            stored[f"{name}_blocks"], stored[f"{name}_scales"] = packed
            tensors[name] = unpack(*packed).transpose(1, 2).contiguous()
    save_file(tensors, plain / "model.safetensors", {"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    del config["dtype"]
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return stored


def loaded(
    folder: Path, dtype: torch.dtype = torch.bfloat16, device: str = "cpu", *, keeps_bits: bool = False
) -> torch.nn.Module:
    return load_weights(
        describe_model("tiny", folder),
        attention="",
        dtype=dtype,
        device=torch.device(device),
        keeps_bits=keeps_bits,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_checkpoint_is_read_as_what_it_means(
    plain: Path, tmp_path: Path, dtype: torch.dtype, device: str
) -> None:
    folder = tmp_path / "packed"
    stored = as_packed(plain, folder)
    halves = [
        {name: t for name, t in stored.items() if name.endswith("_scales") is apart} for apart in (True, False)
    ]
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for name, tensors in zip(names, halves, strict=True):
        save_file(tensors, folder / name)
    weight_map = {key: name for name, tensors in zip(names, halves, strict=True) for key in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert describe_model("tiny", folder).dtype == torch.bfloat16
    ours, wanted = loaded(folder, dtype, device), loaded(plain, dtype)
    assert dict(ours.named_parameters()).keys() == dict(wanted.named_parameters()).keys()
    for (name, weight), expected in zip(ours.named_parameters(), wanted.parameters(), strict=True):
        assert torch.equal(weight.cpu(), expected), name
    assert sum(parameter.dim() == 3 for parameter in ours.parameters()) == 6


def experts_of(model: torch.nn.Module) -> list[torch.Tensor]:
    """Both weights of each mixture, whose experts have 8 bits in common."""
    found = []
    for mixture in [module for module in model.modules() if isinstance(module, SparseMlp)]:
        for weight in (mixture.experts.gate_up, mixture.experts.down):
            if isinstance(weight, StackedWeight):
                parts = [weight.rows_of_all]
            else:
                parts = [part for linear in weight.linears for part in linear.parts]
            assert {(part.bits, part.group_size) for part in parts} == {(8, 32)}
            found.append(torch.cat([part.dequantized(torch.float32) for part in parts]).cpu().view(weight.shape))
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_experts_are_kept_in_8_bits_that_mean_the_same(plain: Path, tmp_path: Path, device: str) -> None:
    folder = tmp_path / "packed"
    save_file(as_packed(plain, folder), folder / "model.safetensors")
    assert describe_model("tiny", folder).stored_as == "MXFP4 (experts)"
    ours, wanted = experts_of(loaded(folder, device=device, keeps_bits=True)), loaded(plain)
    mixtures = [module for module in wanted.modules() if isinstance(module, SparseMlp)]
    theirs = [weight for mixture in mixtures for weight in (mixture.experts.gate_up, mixture.experts.down)]
    for each, expected in zip(ours, theirs, strict=True):
        assert torch.equal(each, expected.float())


@pytest.mark.parametrize(
    ("columns", "byte", "kept"),
    [(slice(None), 104, True), (slice(None), 143, True), (slice(32, 64), 128, True), (slice(16, 64), 128, False),
     (slice(None), 103, False), (slice(None), 144, False), (slice(None), 255, False)],
)  # fmt: skip
def test_what_8_bits_cannot_mean_stays_floats(columns: slice, byte: int, kept: bool) -> None:
    blocks, scales = random_packed(5, 3)
    scales.fill_(byte)
    expert = PackedExpert(blocks, scales, columns)
    few = expert.in_8_bits(torch.device("cpu"))
    assert (few is not None) is kept
    if few is not None:
        assert torch.equal(few.dequantized(torch.float32).T, expert.floats(torch.device("cpu")))


def test_a_scale_that_float16_does_not_hold_makes_a_layer_floats(plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    stored = as_packed(plain, folder)
    name = "model.layers.1.mlp.experts.down_proj"
    stored[f"{name}_scales"][2, 0, 0] = 90
    save_file(stored, folder / "model.safetensors")
    plain_tensors = load_file(plain / "model.safetensors")
    plain_tensors[name] = unpack(stored[f"{name}_blocks"], stored[f"{name}_scales"]).transpose(1, 2).contiguous()
    save_file(plain_tensors, plain / "model.safetensors", {"format": "pt"})
    ours, wanted = loaded(folder, keeps_bits=True), loaded(plain)
    assert isinstance(ours, NativeModel)
    assert settle(ours, ours.head, torch.bfloat16) == ["layers.1.mlp.experts"]
    mixtures = [[each for each in model.modules() if isinstance(each, SparseMlp)] for model in (ours, wanted)]
    for layer, (mixture, expected) in enumerate(zip(*mixtures, strict=True)):
        for weight, floats in (
            (mixture.experts.gate_up, expected.experts.gate_up),
            (mixture.experts.down, expected.experts.down),
        ):
            is_stacked = isinstance(weight, StackedWeight)
            assert is_stacked is (layer != 1)
            meant = weight.rows_of_all.dequantized(torch.bfloat16).view(weight.shape) if is_stacked else weight
            assert torch.equal(meant, floats)


def test_zeros_may_have_any_scale_that_is_a_number() -> None:
    blocks, scales = torch.zeros(1, 3, 16, dtype=torch.uint8), torch.tensor([[0, 103, 254]], dtype=torch.uint8)
    blocks[0, 0] = 0x88  # less than nothing
    few = PackedExpert(blocks, scales, slice(None)).in_8_bits(torch.device("cpu"))
    assert few is not None
    assert not few.dequantized(torch.float32).any()
    scales[0, 1] = 255
    assert PackedExpert(blocks, scales, slice(None)).in_8_bits(torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"down_proj_scales": None}, r"lack model.layers.0.mlp.experts.0.down_proj and \d+ more"),
        ({"down_proj_scales": lambda t: t[:, :-1]}, "other shapes than its config says: .*down_proj"),
        ({"gate_up_proj_blocks": lambda t: t[1:], "gate_up_proj_scales": lambda t: t[1:]}, "other shapes"),
        ({"gate_up_proj_blocks": lambda t: t.float()}, "other shapes"),
    ],
)
def test_a_damaged_one_is_refused_in_words(plain: Path, tmp_path: Path, change: dict, words: str) -> None:
    folder = tmp_path / "packed"
    stored = as_packed(plain, folder)
    for part, changed in change.items():
        for name in [name for name in stored if name.endswith(part)]:
            tensor = stored.pop(name)
            if changed is not None:
                stored[name] = changed(tensor).contiguous()
    save_file(stored, folder / "model.safetensors")
    for keeps_bits in (True, False):
        with pytest.raises(ModelError, match=words):
            loaded(folder, keeps_bits=keeps_bits)


def test_another_format_is_not_read(plain: Path) -> None:
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq"}
    (plain / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="quantised in a way that is not read: GPTQ in None bits"):
        describe_model("tiny", plain, "native")
