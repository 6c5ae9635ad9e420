"""Whatever is wrong with model, machine or prompt: one sentence, what to do, an exit code, no traceback."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from pagedchat.cli import main as cli
from tests.fakes import byte_tokenizer
from tests.helpers_models import POSITIONS, make_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_checkpoint(tmp_path_factory.mktemp("opt"), vocab_size=260)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint to be damaged."""
    return Path(shutil.copytree(checkpoint, tmp_path / "checkpoint"))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class Complaint:
    """What `pagedchat -p` said about a bad input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *argv: str) -> None:
        self.exit_code = cli.main(["-p", "Hello", "--device", "cpu", *argv])
        captured = capsys.readouterr()
        self.sentence, _, self.hint = captured.err.rstrip("\n").partition("\n")
        assert captured.out == ""
        assert "Traceback" not in captured.err
        assert self.sentence.startswith("pagedchat: ")
        assert self.hint, f"nothing says what to do: {self.sentence}"
        assert "\n" not in self.hint


def test_checkpoint_that_is_to_be_damaged_works(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-p", "Hello", "--device", "cpu", "--model", str(checkpoint), "--max-tokens", "3"]) == 0
    assert capsys.readouterr().err == ""


def test_folder_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", str(tmp_path / "nowhere"))
    assert complaint.exit_code == 1
    assert "nowhere" in complaint.sentence


def test_model_of_the_hub_without_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", "nobody/no-such-model")
    assert complaint.exit_code == 1
    assert "nobody/no-such-model" in complaint.sentence
    assert "network" in complaint.sentence + complaint.hint


def test_folder_without_a_config(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "config.json").unlink()
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert "config.json" in complaint.sentence


def test_folder_without_weights(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "model.safetensors").unlink()
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert "model.safetensors" in complaint.sentence + complaint.hint


def test_folder_without_a_tokenizer(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "tokenizer.json").unlink()
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert "tokenizer" in complaint.sentence.replace(str(copy), "")


@pytest.mark.parametrize(
    ("model_type", "architecture"), [("bert", "BertModel"), ("t5", "T5ForConditionalGeneration")]
)
def test_architecture_that_is_not_decoder_only(
    copy: Path, capsys: pytest.CaptureFixture[str], model_type: str, architecture: str
) -> None:
    config = {"model_type": model_type, "architectures": [architecture], "vocab_size": 260}
    (copy / "config.json").write_text(json.dumps(config))
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert architecture in complaint.sentence or model_type in complaint.sentence
    assert "decoder-only" in complaint.sentence + complaint.hint


def test_architecture_that_nobody_knows(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "config.json").write_text(json.dumps({"model_type": "unheard_of", "architectures": ["UnheardOf"]}))
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert "UnheardOf" in complaint.sentence or "unheard_of" in complaint.sentence


@pytest.mark.parametrize(
    ("name", "named"),
    [("config.json", "config.json"), ("model.safetensors", "model.safetensors"), ("tokenizer.json", "tokenizer")],
)
def test_file_that_is_cut_short(copy: Path, capsys: pytest.CaptureFixture[str], name: str, named: str) -> None:
    cut_short(copy / name)
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert named in complaint.sentence.replace(str(copy), "")


def test_pickled_weights_that_are_cut_short(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "model.safetensors").unlink()
    torch.save({"weight": torch.zeros(1000)}, copy / "pytorch_model.bin")
    cut_short(copy / "pytorch_model.bin")
    complaint = Complaint(capsys, "--model", str(copy))
    assert complaint.exit_code == 1
    assert "pytorch_model.bin" in complaint.sentence


def test_no_blocks(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", str(checkpoint), "--num-blocks", "0")
    assert complaint.exit_code == 2
    assert complaint.sentence == "pagedchat: --num-blocks is 0."


def test_cache_memory_for_less_than_one_block(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", str(checkpoint), "--kv-cache-memory", "1KiB")
    assert complaint.exit_code in (1, 2)
    assert "block" in complaint.sentence


def test_prompt_longer_than_the_context(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", str(checkpoint), "-p", "x" * 300, "--raw")
    assert complaint.exit_code == 1
    assert complaint.sentence == (
        f"pagedchat: The prompt has 300 tokens, but the model's context is {POSITIONS}, reply included."
    )


def test_pool_too_small_for_one_prompt(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", str(checkpoint), "-p", "x" * 40, "--raw", "--num-blocks", "2")
    assert complaint.exit_code == 1
    assert "needs 3 blocks with its reply; the KV cache has 2" in complaint.sentence
    assert "--num-blocks" in complaint.hint


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = Complaint(capsys, "--model", str(checkpoint), "--device", "cuda")
    assert complaint.exit_code == 1
    assert "--device cuda" in complaint.sentence
    assert "--device cpu" in complaint.hint
