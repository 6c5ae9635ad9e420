"""Scripts as vLLM's users write them run with nothing changed but the import and the model's folder."""

import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from pagedchat import bundled
from pagedchat.service.client import EngineClient
from pagedchat.vllm.v1.engine import async_llm
from tests.helpers_models import make_checkpoint
from tests.service.fake_engine import ENTRY

SCRIPTS = Path(__file__).parent / "scripts"
ARGUMENTS = {
    "chat": ["--max_tokens", "5", "--temperature=0.5", "--max-model-len", "120"],
    "engine": ["--model", "MODEL", "--no-enable-prefix-caching"],
}


FAKE_ENGINE = [*ENTRY, "tests.service.fake_engine:load_endless"]
"""A process without a model, which is there at once."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny one with random weights, with the tokenizer of the model in the box."""
    folder = make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama", 8192)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(bundled.folder() / name, folder)
    return folder


@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_script_runs(
    name: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if name == "structured":
        pytest.importorskip("llguidance")
    if name == "streaming":
        monkeypatch.setattr(async_llm, "EngineClient", partial(EngineClient, entry=FAKE_ENGINE))
    source = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    source, count = re.subn(r"^from vllm\b", "from pagedchat.vllm", source, flags=re.MULTILINE)
    assert count
    arguments = [each.replace("MODEL", str(model)) for each in ARGUMENTS.get(name, [])]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    exec(compile(source.replace('"MODEL"', repr(str(model))), name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out
