"""Offline scripts as vLLM's users write them, run with nothing changed but the import and the model's folder."""

import json
import re
from pathlib import Path

import pytest

from tests.fakes import CHAT_TEMPLATE, byte_tokenizer
from tests.helpers_models import make_checkpoint

SCRIPTS = Path(__file__).parent / "vllm_scripts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokens are characters."""
    folder = make_checkpoint(tmp_path_factory.mktemp("opt"), vocab_size=260)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    return folder


@pytest.fixture
def said(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> list[str]:
    """What the script prints that the test names."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = (SCRIPTS / f"{request.param}.txt").read_text()
    assert len(re.findall("^from vllm import", script, re.MULTILINE)) == 1
    ours = re.sub(r"from vllm(\.\w+)? import", "from pagedchat import", script)
    ours = ours.replace("facebook/opt-125m", str(folder))
    exec(compile(ours, request.param, "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("said", ["basic"], indirect=True)
def test_basic(said: list[str]) -> None:
    prompts = ["Hello, my name is", "The sea is", "The sky was"]
    assert [line.partition(", Generated text: '")[0] for line in said] == [
        f"Prompt: {prompt!r}" for prompt in prompts
    ]


@pytest.mark.parametrize("said", ["chat"], indirect=True)
def test_chat(said: list[str]) -> None:
    assert said[0].startswith("Prompt: None, Generated text: ")
    assert said[1:] == ["4 1"]


@pytest.mark.parametrize("said", ["beam_search"], indirect=True)
def test_beam_search(said: list[str]) -> None:
    assert said == ["3 True True", "True 3"] * 2


@pytest.mark.parametrize("said", ["prefix_caching"], indirect=True)
def test_prefix_caching(said: list[str]) -> None:
    assert said[0] == "Generated answers are the same: True"
    found = json.loads(said[1].removeprefix("Tokens found: "))
    assert min(found) >= 48


@pytest.mark.parametrize("said", ["logprobs"], indirect=True)
def test_logprobs(said: list[str]) -> None:
    assert said == [
        "Prompt tokens: 10 told of: 10", "First one: None", *["1 True 2 str"] * 4, "Sum: True length True",
    ]  # fmt: skip
