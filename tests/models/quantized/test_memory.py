"""Loading never has the whole model in floats in memory, nor a weight twice; chats hold little more than it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.models.checkpoint_tensors import read_tensors
from pagedchat.ops.common.pages import FilePages
from pagedchat.ops.cpu.kernels import cpu_kernels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """54 million parameters in bfloat16, 107 MB."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("large")
    config = LlamaConfig(
        vocab_size=8000, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12,
        num_key_value_heads=4, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_the_peak_is_that_of_the_few_bits_and_one_layer(checkpoint: Path, quantization: str) -> None:
    script = Path(__file__).with_name("peak_memory.py")
    command = [sys.executable, str(script), str(checkpoint), quantization]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    peak, held, kept, layer = map(int, result.stdout.split())
    assert kept < (60e6 if quantization == "int8" else 36e6)
    assert peak <= 1.1 * kept + layer + 4e6
    assert held <= 1.1 * kept + 4e6


def test_pages_of_a_file_are_read_again_and_others_are_left_alone(checkpoint: Path) -> None:
    [weights] = checkpoint.glob("*.safetensors")
    name, mapped = next(read_tensors([weights]))
    before = mapped.clone()
    pages = FilePages()
    pages.forget(mapped)
    assert torch.equal(mapped, before), name
    pages.forget(before)  # memory of our own
    assert torch.equal(mapped, before)


def test_loading_imports_no_algebra(checkpoint: Path) -> None:
    """Which torch asks for where a tensor without memory is copied, and which takes two seconds."""
    script = """
import sys, torch
from pathlib import Path
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
description = describe_model("m", Path(sys.argv[1]))
load_weights(description, attention="", dtype=torch.float32, device=torch.device("cpu"), quantization="int8")
print("sympy" in sys.modules)
"""
    command = [sys.executable, "-c", script, str(checkpoint)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout == "False\n"


def write_narrow(folder: Path, *, vocabulary: int, layers: int) -> Path:
    """Layers that are narrow: of 64,000 rows and 24 of them there are 46 million parameters."""
    shape = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "hidden_size": 512,
        "intermediate_size": 256, "num_hidden_layers": layers, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 64, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    folder.mkdir()
    write_checkpoint(folder, shape, torch.bfloat16, torch.device("cpu"))
    return folder


def resident_after_chats(checkpoint: Path) -> tuple[int, int]:
    """Bytes held by a model and its chats, and of its weights, in a process that finds its kernels on the disk: who
    asks whether there are any, as the test below does, compiles them, and holds what that takes."""
    script = Path(__file__).with_name("resident_memory.py")
    command = [sys.executable, str(script), str(checkpoint), "int8"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    held, kept = map(int, result.stdout.split())
    return held, kept


@pytest.mark.slow
@pytest.mark.skipif(cpu_kernels() is None, reason="no CPU kernels")
def test_chats_hold_little_more_than_weights_and_what_libraries_take(tmp_path: Path) -> None:
    """Neither the table of the tokens in its file nor 2 MiB for the keys and the values of each layer.

    What libraries take differs by tens of megabytes from machine to machine: a model of next to nothing says it.
    """
    least, least_kept = resident_after_chats(write_narrow(tmp_path / "least", vocabulary=4000, layers=1))
    held, kept = resident_after_chats(write_narrow(tmp_path / "deep", vocabulary=64000, layers=24))
    assert kept > least_kept + 40e6
    assert held - least < kept - least_kept + 40e6
