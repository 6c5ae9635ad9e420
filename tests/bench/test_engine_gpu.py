"""The run on a GPU as far as it goes without one: arguments, order, peers that fail, comparisons, errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pagedchat.bench.engine import gpu, measuring
from pagedchat.bench.engine.measures import Figure
from pagedchat.bench.engine.measuring import Measuring
from pagedchat.bench.engine.results import Results
from pagedchat.bench.engine.same_tokens import SameTokens, compare_company, compare_implementations
from pagedchat.bench.engine.workloads import Prompts
from pagedchat.bench.kernels.bandwidth import Limits
from pagedchat.bench.made_up import given_or_made_up
from pagedchat.bench.random_checkpoint import LARGE_STD, write_checkpoint
from pagedchat.cli import main as cli
from pagedchat.cli.options import parse_args
from tests.bench.engine_fakes import TINY_OPT, FakeEngine


def test_options_of_the_run_on_a_gpu() -> None:
    given = {"--device": "cuda", "--only": "decode,first", "--against": "transformers"}
    args = parse_args(["bench", "engine", "--markdown", *(word for pair in given.items() for word in pair)])
    assert (args.only, args.against) == (["decode", "first"], ["transformers"])
    assert (args.device, args.markdown, args.repeats) == ("cuda", True, None)
    step = parse_args(["bench", "step", "--batch", "1,8", "--context", "100"])
    assert (step.batch, step.context) == ([1, 8], 100)
    assert (step.temperature, step.top_k, step.top_p) == (0, 0, 1)
    drawn = parse_args(["bench", "step", "--temperature", "0.7", "--top-k", "20", "--top-p", "0.8"])
    assert (drawn.temperature, drawn.top_k, drawn.top_p) == (0.7, 20, 0.8)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("bench engine --only decode,nonsense", "--only: 'nonsense' is none of start, stutter, decode, "),
        ("bench engine --against vllm", "--against: 'vllm' is none of transformers."),
        ("bench step --batch 1,none", "--batch: 'none' is not a number from 1 to 10000000."),
        ("bench step --temperature cold", "--temperature: invalid float value: 'cold'."),
        ("bench step --temperature -1", "temperature is -1.0.\nIt must be a number from 0 to 1000."),
        ("bench step --temperature 1 --top-p 3", "top_p is 3.0.\nIt must be a number above 0, up to 1."),
    ],
)
def test_wrong_option_is_one_sentence(argv: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv.split()) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("argv", ["bench engine --device cuda", "bench step"])
def test_without_a_gpu_nothing_is_measured(
    argv: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(argv.split()) == 1
    captured = capsys.readouterr()
    assert "torch finds no" in captured.err
    assert "Run this on a machine with one" in captured.err
    assert captured.out == ""


def test_a_peer_that_fails_is_told_of_and_the_others_go_on() -> None:
    said: list[str] = []
    run = Measuring("folder", "float16", 1, [], [], made_up=True, say=said.append)
    results = Results(gpu="NVIDIA H200", repeats=1)
    run._run_engine(FakeEngine("transformers", lacks=1), Prompts(100), ["first"], results)
    run._run_engine(FakeEngine("pagedchat"), Prompts(100), ["first"], results)
    assert list(results.failed) == ["transformers, first token"]
    assert [figure.engine for figure in results.speed] == ["pagedchat"] * 3
    assert said[:2] == ["transformers: first token", "pagedchat: first token"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["same", "shapes", "start"], ["start", "GPU", "copy", "big 4000.0", "company", "greedy"]),
        (["start"], ["start", "GPU"]),
        (["decode", "same"], ["GPU", "copy", "speed", "company", "greedy"]),
    ],
)
def test_start_is_measured_before_the_gpu_is_woken(
    wanted: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def note(what: str, value: Any = None) -> Any:
        done.append(what)
        return value

    monkeypatch.setattr(measuring, "measure_start", lambda *_: note("start", []))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: note("GPU", "some GPU"))
    monkeypatch.setattr(measuring, "measure_limits", lambda link: note("copy", Limits(copy=4000.0)))
    monkeypatch.setattr(measuring, "measure_shape", lambda name, _, __, copy, ___: note(f"{name} {copy}"))
    monkeypatch.setattr(measuring, "compare_company", lambda *_: note("company"))
    monkeypatch.setattr(measuring, "compare_implementations", lambda *_: note("greedy"))
    monkeypatch.setattr(Measuring, "_speed", lambda *_: note("speed"))
    Measuring("folder", "float16", 1, [], ["big"], made_up=False, say=lambda _: None).run(wanted)
    assert done == expected


def test_page_and_file_have_all_that_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(
        gpu="NVIDIA H200",
        repeats=5,
        copy_gb_s=4250.4,
        speed=[Figure(row="decode_1_ms", engine="pagedchat", runs=[0.1, 0.3, 0.2])],
        failed={"transformers static, 8 chats": "OutOfMemoryError: no"},
        same=[SameTokens(what="roads", num_same=1, num_replies=2, num_different=9)],
    )
    monkeypatch.setattr(gpu, "finds_gpu", lambda: True)
    monkeypatch.setattr(Measuring, "run", lambda _self, _wanted: results)
    argv = ["bench", "engine", "--device", "cuda", "--model", "some/model", "--json", str(tmp_path / "x.json")]
    assert cli.main(argv) == 1  # not all the same
    page = capsys.readouterr().out
    assert page.startswith("NVIDIA H200, copy 4250 GB/s; some/model, float16, greedy, medians of 5\n\nSpeed\n")
    assert "transformers static, 8 chats failed: OutOfMemoryError: no" in page
    assert "Stored peers were not measured in this run but on one NVIDIA H200" in page
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["speed"] == [
        {"row": "decode_1_ms", "engine": "pagedchat", "runs": [0.1, 0.3, 0.2], "median": 0.2}
    ]


def test_model_that_was_made_up_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedchat.bench.made_up.OPT_125M", TINY_OPT)
    with given_or_made_up(None, lambda _: None) as folder:
        assert (Path(folder) / "model.safetensors").exists()
    assert not Path(folder).exists()
    with given_or_made_up("hub/id", lambda _: None) as given:
        assert given == "hub/id"


def test_two_roads_lead_to_the_same_tokens(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_OPT, torch.float32, torch.device("cpu"), std=3 * LARGE_STD)
    greedy = compare_implementations(str(tmp_path), "cpu", num_prompts=2)
    assert (greedy.num_same, greedy.num_replies, greedy.all_same) == (2, 2, True)
    assert greedy.num_different > 5


def test_company_changes_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_OPT, torch.float32, torch.device("cpu"))
    drawn = compare_company(str(tmp_path), "cpu", num_chats=4, num_alone=2)
    assert (drawn.what, drawn.all_same) == ("a seed alone and among 3 others, drawn", True)
    assert drawn.num_different > 20
