"""Logits of 16-bit models through the kernels are as near to float32 as those of transformers in the same type."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
import torch
from transformers import AutoModelForCausalLM

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, QuantizationName
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.models.quantized.forms import Quantization
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.model_runner import TorchModelRunner
from tests.helpers_models import KERNEL_FAMILIES, KERNEL_MIXTURES, make_checkpoint
from tests.models.quantized.dequantised import dequantised_checkpoint
from tests.runtime.drive import eager_of

pytestmark = pytest.mark.gpu
TOKENS = [(11 * i) % 90 + 3 for i in range(100)]
CUTS = [0, 33, 64, 65, 66, 98, 99, 100]
"""Chunks of many tokens, and of one."""


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", KERNEL_FAMILIES)
def test_error_of_the_logits(family: str, dtype: str, block_size: int, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path, family)
    exact = transformers_logits(checkpoint, "float32")
    error = our_logits(checkpoint, dtype, block_size) - exact
    of_transformers = transformers_logits(checkpoint, dtype) - exact
    if family in KERNEL_MIXTURES:
        assert 0 < typical(error) <= 1.5 * typical(of_transformers)
    else:
        assert error.norm() <= 2 * of_transformers.norm()


@pytest.mark.parametrize("quantization", ["int8", "int4", "fp8"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", KERNEL_MIXTURES)
def test_error_of_mixtures_in_few_bits(family: str, dtype: str, quantization: Quantization, tmp_path: Path) -> None:
    """No larger than what transformers is off by with the weights that the bits stand for, in the text in the
    middle: a token that rounding gives another expert has it on one side alone, and all behind it notice."""
    checkpoint = make_checkpoint(tmp_path / "whole", family)
    (tmp_path / "few").mkdir()
    meant = dequantised_checkpoint(tmp_path / "few", checkpoint, quantization, on_gpu=True, device="cuda")
    runner, ratios = our_runner(checkpoint, dtype, 16, quantization), []
    for text in ([(11 * i + shift) % 90 + 3 for i in range(100)] for shift in (0, 35, 63)):
        exact = transformers_logits(meant, "float32", text)
        ours = least(logits_in_chunks(runner, 16, text) - exact)
        assert ours > 0
        ratios.append(float(ours / least(transformers_logits(meant, dtype, text) - exact)))
    assert median(ratios) <= 1.5


def least(differences: torch.Tensor) -> torch.Tensor:
    """Of tokens: nine of ten are off by more."""
    return differences.norm(dim=-1).quantile(0.1)


def typical(differences: torch.Tensor) -> torch.Tensor:
    """Of tokens: the mean by square would be that of a few, which rounding has given other experts."""
    return differences.norm(dim=-1).median()


def transformers_logits(checkpoint: Path, dtype: str, tokens: list[int] = TOKENS) -> torch.Tensor:
    """`[num_tokens, vocab_size]`, float32."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=dtype, attn_implementation="eager").cuda().eval()
    with torch.inference_mode():
        return model(torch.tensor([tokens], device="cuda"), use_cache=False).logits[0].float()


def our_logits(checkpoint: Path, dtype: str, block_size: int) -> torch.Tensor:
    """The same, computed in chunks."""
    return logits_in_chunks(our_runner(checkpoint, dtype, block_size), block_size, TOKENS)


def our_runner(
    checkpoint: Path, dtype: str, block_size: int, quantization: QuantizationName = "auto"
) -> TorchModelRunner:
    """Our model, eager."""
    model = ModelConfig(
        model=str(checkpoint),
        skip_tokenizer_init=True,
        device="cuda",
        dtype=dtype,
        attention_backend="cuda",
        quantization=quantization,
    )
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(block_size=block_size, num_blocks=40)))
    return eager_of(loaded.runner)


def logits_in_chunks(runner: TorchModelRunner, block_size: int, tokens: list[int]) -> torch.Tensor:
    """`[num_tokens, vocab_size]`, float32."""
    seq = Sequence(1)
    seq.token_ids, seq.block_table = tokens, [(7 * i) % 40 for i in range(100 // block_size + 1)]
    chunks = []
    for start, end in pairwise(CUTS):
        inputs = flatten([ScheduledSequence(seq, start, end - start, True)], block_size, torch.device("cuda"))
        every_row = replace(inputs, last_rows=torch.arange(end - start, device="cuda"))
        chunks.append(runner.forward(every_row).float())
    return torch.cat(chunks)
