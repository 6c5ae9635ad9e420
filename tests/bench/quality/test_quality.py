"""What weights of few bits cost: the table, against transformers' own loss, and what is refused."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from pagedchat.bench.quality.measure import measure
from pagedchat.cli.main import main
from pagedchat.models.config import describe_model
from pagedchat.resources import resource_dir
from tests.models.families.tiny_families import save_tiny
from tools.toy_model.written import conversations_of, read_records

TEXTS = resource_dir("assets").parent / "tools" / "toy_model" / "text"
TEXT = "The tide was out.\nThe cat sat on the wall and waited for the boats.\n" * 4


def run(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    status = main(["bench", "quality", *options])
    said = capsys.readouterr()
    return status, said.out, said.err


def forms_of(figures: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(figures.read_text())["forms"]
    return found


def test_the_model_in_the_box_stays_within_its_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a text that comes along; 8 bits may cost half a percent, 4 bits three, of which some are left."""
    status, out, _ = run(capsys, "--json", str(tmp_path / "figures.json"))
    whole, eight, four = forms_of(tmp_path / "figures.json")
    assert status == 0
    assert [each["form"] for each in (whole, eight, four)] == ["none", "int8", "int4"]
    assert eight["perplexity"] <= 1.005 * whole["perplexity"]
    assert four["perplexity"] <= 1.02 * whole["perplexity"]
    assert four["weight_bytes"] < eight["weight_bytes"] < 0.35 * whole["weight_bytes"]
    assert "1,832 tokens in windows of 512" in out
    assert f"{four['perplexity']:.3f}" in out


def test_so_it_does_by_conversations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of its own texts; it is surer of them, and has more to lose."""
    choices = Random(1)
    said = [
        text
        for record in list(read_records(TEXTS, "15 million"))[::40]
        for conversation in conversations_of(record, choices, record.wordings()[-1:])
        for _, text in conversation.messages
    ]
    (tmp_path / "said.txt").write_text("\n".join(said))
    options = ["--text", str(tmp_path / "said.txt"), "--json", str(tmp_path / "figures.json"), "--tokens", "3000"]
    assert run(capsys, "--quantize", "int4", *options)[0] == 0
    whole, four = forms_of(tmp_path / "figures.json")
    assert whole["num_tokens"] > 2500
    assert four["perplexity"] <= 1.04 * whole["perplexity"]


@pytest.mark.parametrize("cache", ["fp8", "int8"])
def test_a_small_cache_costs_half_a_percent_at_most(
    cache: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "--kv-cache-dtype", cache, "--json", str(tmp_path / "figures.json"))
    whole, small = json.loads((tmp_path / "figures.json").read_text())["forms"]
    assert status == 0
    assert (whole["form"], small["form"]) == ("none", f"none, {cache} cache")
    assert small["perplexity"] != whole["perplexity"]
    assert small["perplexity"] <= 1.005 * whole["perplexity"]
    assert f"none, {cache} cache" in out


def test_weights_and_cache_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    options = ["--quantize", "int8", "--kv-cache-dtype", "fp8", "--text", str(text), "--json", str(tmp_path / "f")]
    assert run(capsys, *options)[0] == 0
    forms = [each["form"] for each in json.loads((tmp_path / "f").read_text())["forms"]]
    assert forms == ["none", "int8", "none, fp8 cache", "int8, fp8 cache"]


def test_perplexity_is_that_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    checkpoint = save_tiny(tmp_path, "qwen2")
    token_ids = [(7 * i * i + 3) % 90 + 3 for i in range(50)]
    found = measure(describe_model("m", checkpoint), None, token_ids, 20)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    lost = 0.0
    for window in (token_ids[:20], token_ids[20:40], token_ids[40:]):
        ids = torch.tensor([window])
        with torch.no_grad():
            lost += float(model(ids, labels=ids).loss) * (len(window) - 1)
    assert found.num_tokens == 47
    assert found.perplexity == pytest.approx(math.exp(lost / 47), rel=1e-4)


def test_one_form_and_a_text_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    status, out, err = run(capsys, "--quantize", "int8", "--text", str(text), "--window", "16", "--tokens", "40")
    assert status == 0
    assert "37 tokens in windows of 16" in out
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["none", "int8"]
    assert "int8 of none; int8" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--quantize", "int3"], "--quantize is 'int3'"),
        (["--kv-cache-dtype", "fp4"], "--kv-cache-dtype is 'fp4'"),
        (["--text", "/no/such/text"], "cannot be read"),
        (["--tokens", "1"], "nothing to foretell"),
    ],
)
def test_what_cannot_be_measured_is_said(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *options)
    assert (status, out) == (2, "")
    assert words in err


def test_the_text_that_comes_along_is_text() -> None:
    text: Any = (resource_dir("assets") / "held_out.txt").read_text(encoding="utf-8")
    assert len(text.split()) > 1400
