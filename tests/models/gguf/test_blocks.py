"""Every kind of block against the `gguf` package's own account of it."""

import numpy as np
import pytest
import torch

from pagedchat.models.gguf.blocks import unpack
from pagedchat.models.gguf.kinds import KINDS
from pagedchat.ops.quantized.weight import QuantizedWeight

gguf = pytest.importorskip("gguf", reason="the development group has it")
EXACT = ("Q4_0", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
NUMBERS = {kind.name: number for number, kind in KINDS.items()}
WIDTH, ROWS = 512, 9


def random_blocks(name: str, seed: int) -> np.ndarray:
    """`[ROWS, bytes of a row]`: any digits and small scales, the float16s being numbers of a weight's size."""
    kind = KINDS[NUMBERS[name]]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (ROWS, WIDTH // kind.block_size, kind.block_bytes), dtype=np.uint8)
    places = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(name, (0,))
    for place in places:
        halves = (random.standard_normal(blocks.shape[:2]) * 2.0 ** random.integers(-12, 2)).astype(np.float16)
        blocks[..., place : place + 2] = halves[..., None].view(np.uint8)
    if name == "MXFP4":
        blocks[..., 0] = random.integers(104, 130, blocks.shape[:2])  # exponents
    return blocks.reshape(ROWS, -1)


def theirs(name: str, content: np.ndarray) -> torch.Tensor:
    floats = gguf.dequantize(content, getattr(gguf.GGMLQuantizationType, name))
    return torch.from_numpy(np.ascontiguousarray(floats)).view(ROWS, WIDTH)


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in ("F32", "F16", "BF16")])
@pytest.mark.parametrize("seed", range(4))
def test_few_bits(name: str, seed: int) -> None:
    content = random_blocks(name, seed)
    few = unpack(NUMBERS[name], torch.from_numpy(content.copy()).flatten(), (ROWS, WIDTH))
    assert isinstance(few, QuantizedWeight)
    exact, ours = theirs(name, content), few.dequantized()
    if name in EXACT:
        assert torch.equal(ours, exact)
        return
    steps = (few.integers().float().view(ROWS, -1, few.group_size) * few.scales.float().unsqueeze(2)).abs()
    lowest = 0 if few.minimums is None else few.minimums.float().abs().unsqueeze(2)
    bound = (2**-11 * (steps + lowest) + 2**-24 * (few.integers().abs().view(steps.shape) + 1)).view(ROWS, WIDTH)
    error = (ours - exact).abs()
    assert (error <= bound * 1.01).all()
    assert error.max() > 0  # else it belongs among the exact ones


@pytest.mark.parametrize(
    ("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)]
)
def test_floats_wherever_they_lie(name: str, dtype: torch.dtype) -> None:
    floats = torch.randn(3, 32).to(dtype)
    content = torch.cat((torch.zeros(1, dtype=torch.uint8), floats.view(torch.uint8).flatten()))
    for start in (0, 1):
        laid = content[1:].clone() if start == 0 else content[1:]
        assert torch.equal(unpack(NUMBERS[name], laid, (3, 32)), floats)


def test_a_norm_is_floats() -> None:
    content = random_blocks("Q8_0", 0)[0]
    norm = unpack(NUMBERS["Q8_0"], torch.from_numpy(content.copy()), (WIDTH,))
    assert isinstance(norm, torch.Tensor)
    assert norm.shape == (WIDTH,)


@pytest.mark.parametrize("wrong", [np.inf, np.nan])
def test_scales_that_are_none_are_refused(wrong: float) -> None:
    content = random_blocks("Q4_0", 0)
    content[2, :2] = np.array([wrong], dtype=np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="scales that are not finite"):
        unpack(NUMBERS["Q4_0"], torch.from_numpy(content).flatten(), (ROWS, WIDTH))


@pytest.mark.parametrize("exponent", [144, 255])
def test_powers_that_are_none_or_too_large_are_refused(exponent: int) -> None:
    content = random_blocks("MXFP4", 0)
    content[3, 17] = exponent
    with pytest.raises(ValueError, match="scales that are not finite, or too large"):
        unpack(NUMBERS["MXFP4"], torch.from_numpy(content).flatten(), (ROWS, WIDTH))


def test_a_block_of_zeros_has_any_exponent() -> None:
    content = np.zeros((ROWS, WIDTH // 32 * 17), dtype=np.uint8)
    few = unpack(NUMBERS["MXFP4"], torch.from_numpy(content).flatten(), (ROWS, WIDTH))
    assert isinstance(few, QuantizedWeight)
    assert not few.dequantized().any()


def test_sizes_are_those_of_the_package() -> None:
    for number, kind in KINDS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (kind.block_size, kind.block_bytes)
        assert gguf.GGMLQuantizationType(number).name == kind.name
