"""`pagedchat bench cpu` on a model of two layers."""

import json
import re
from pathlib import Path

import pytest
import torch

from pagedchat.bench.main import run_bench
from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.cli.options import parse_args
from pagedchat.errors import DeviceError, InvalidValueError
from pagedchat.ops.cpu.kernels import cpu_kernels

TINY = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip

MIXTURE = TINY | {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 256, "intermediate_size": 1024,
    "num_local_experts": 16, "num_experts_per_tok": 2, "num_attention_heads": 4, "sliding_window": None,
    "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(autouse=True)
def need_kernels() -> None:
    if cpu_kernels() is None:
        pytest.skip("no CPU kernels")


def bench(*options: str) -> int:
    return run_bench(parse_args(["bench", "cpu", *options]))


def test_a_step_is_told_kernel_by_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path, TINY, torch.float32, torch.device("cpu"))
    figures = tmp_path / "figures.json"
    options = ["--batch", "1,3", "--steps", "2", "--context", "20", "--json", str(figures)]
    assert bench("--model", str(tmp_path), *options) == 0
    shown = capsys.readouterr().out
    steps = json.loads(figures.read_text())["steps"]
    assert [step["chats"] for step in steps] == [1, 3]
    for step in steps:
        assert len(step["kernels"]) == 12  # five products with their inputs, heads and attention
        assert 0 < step["step"] < 1000
        assert all(ms > 0 for ms in step["kernels"].values())
    assert "attention" in shown
    assert "GB/s" in shown


def test_rows_of_drafts_are_measured_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path, TINY, torch.float32, torch.device("cpu"))
    figures = tmp_path / "figures.json"
    options = ["--batch", "2", "--rows", "1,4", "--steps", "1", "--context", "20", "--json", str(figures)]
    assert bench("--model", str(tmp_path), *options) == 0
    assert "2 chats of 4 rows each, 20 tokens" in capsys.readouterr().out
    steps = json.loads(figures.read_text())["steps"]
    assert [(step["chats"], step["rows"]) for step in steps] == [(2, 1), (2, 4)]


def test_weights_of_few_bits_are_fewer_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path, TINY, torch.float32, torch.device("cpu"))
    figures = tmp_path / "figures.json"
    options = ["--batch", "1", "--steps", "1", "--context", "20", "--quantize", "int4", "--json", str(figures)]
    assert bench("--model", str(tmp_path), *options) == 0
    assert " in int4, 1 chat, 20 tokens" in capsys.readouterr().out
    [step] = json.loads(figures.read_text())["steps"]
    assert len(step["kernels"]) == 12  # both forms of queries, keys and values by one name


def test_what_cannot_be_measured_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="--batch times --rows is at most"):
        bench("--batch", "33", "--rows", "1,4")
    with pytest.raises(InvalidValueError, match="--quantize is 'int3'"):
        bench("--quantize", "int3")
    write_checkpoint(tmp_path, {**TINY, "head_dim": 24}, torch.float32, torch.device("cpu"))
    with pytest.raises(DeviceError, match="since its heads are 24 wide"):
        bench("--model", str(tmp_path))
    write_checkpoint(tmp_path, MIXTURE, torch.float32, torch.device("cpu"))
    with pytest.raises(DeviceError, match=r"not all of its weights have kernels\. Try --quantize int8"):
        bench("--model", str(tmp_path))


def test_of_a_mixture_a_step_reads_the_experts_of_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path, MIXTURE, torch.float32, torch.device("cpu"))
    options = ["--batch", "1,8", "--steps", "1", "--context", "20", "--quantize", "int8"]
    assert bench("--model", str(tmp_path), *options, "--json", str(tmp_path / "figures.json")) == 0
    one, eight = json.loads((tmp_path / "figures.json").read_text())["steps"]
    names = {"router", "which experts", "rows by experts", "experts up", "experts down", "sum of experts"}
    assert names < set(one["kernels"])
    assert set(one["kernels"]) == set(eight["kernels"])
    read = [int(megabytes) for megabytes in re.findall(r"([\d,]+) MB of weights", capsys.readouterr().out)]
    assert read[1] > 2 * read[0] > 0
