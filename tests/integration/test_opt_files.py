"""A folder with OPT's own kinds of files, through the command line."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pagedchat import LLM, SamplingParams
from pagedchat.cli import main as cli
from tests.integration.opt_files import save_opt_files

END_OF_SEQUENCE = 2
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opt_files(tmp_path_factory.mktemp("opt"))


def ask(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> str:
    argv = [
        "--model",
        str(folder),
        "--device",
        "cpu",
        "-p",
        "hello the",
        "--temperature",
        "0",
        "--max-tokens",
        "12",
    ]
    assert cli.main([*argv, *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_folder_has_no_other_kind_of_file(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "pytorch_model.bin", "vocab.json", "merges.txt"}


def test_text_is_encoded_by_the_merges_behind_opts_first_token(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = json.loads(ask(capsys, folder, "--raw", "--json"))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    words = [vocabulary["hello"], vocabulary["Ġthe"]]
    assert reply["prompt_token_ids"] == [END_OF_SEQUENCE, *words]
    assert 0 < len(reply["token_ids"]) <= 12


def test_reply_is_streamed_as_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, folder, "--raw")
    whole = json.loads(ask(capsys, folder, "--raw", "--json"))["text"]
    assert shown == whole + "\n"


def test_base_model_gets_a_transcript(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reply = json.loads(ask(capsys, folder, "--json"))
    llm = LLM(str(folder), device="cpu", num_blocks=8)
    assert llm.tokenizer is not None
    assert llm.tokenizer.decode(reply["prompt_token_ids"]) == "User: hello the\nAssistant:"


def test_pickled_and_safe_tensors_give_the_same_tokens(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.suffix != ".bin":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    weights.pop("lm_head.weight", None)  # tied; safetensors stores no tensor twice
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    replies = [
        LLM(str(source), device="cpu", num_blocks=8).generate("hello", GREEDY)[0].outputs[0].token_ids
        for source in (folder, tmp_path)
    ]
    assert replies[0] == replies[1]
    assert len(replies[0]) == 12
