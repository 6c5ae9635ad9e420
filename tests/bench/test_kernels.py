import json
from collections.abc import Sequence
from math import nan
from pathlib import Path

import pytest
import torch

from pagedchat.bench.kernels import choices, shapes
from pagedchat.bench.kernels.bandwidth import Limits
from pagedchat.bench.kernels.figures import Bench, Contender, Work, copy_error, relative_error
from pagedchat.bench.kernels.stored import stored_peers
from pagedchat.bench.kernels.timing import Call, Timing, num_rounds, num_samples, num_sets, rotated_bytes
from pagedchat.cli.main import main
from pagedchat.cli.options import parse_args
from pagedchat.errors import InvalidValueError

WORK = Work(section="decode", shape="1,2", moved_bytes=4_000_000, limit_gb_s=1000.0, flops=8_000_000)


def test_its_command_line() -> None:
    args = parse_args(["bench", "kernels", "--only", "decode, copy", "--peers", "torch", "--json", "out.json"])
    assert (args.command, args.benchmark, args.json) == ("bench", "kernels", Path("out.json"))
    assert (args.only, args.peers, args.markdown) == (["decode", "copy"], ["torch"], False)


def test_help_names_every_section_and_peer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_args(["bench", "kernels", "--help"])
    words = "".join(capsys.readouterr().out.split())
    assert ",".join(choices.SECTIONS) in words
    assert ",".join(choices.PEERS) in words


def test_without_a_gpu_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "kernels"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "pagedchat: The kernels cannot be measured: torch finds no CUDA GPU here.",
        "Run this on a machine with one.",
    ]


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidValueError, match="--only: there is no 'decoding'") as caught:
        choices.choose_sections(["copy", "decoding"])
    assert "prefill" in caught.value.hint
    with pytest.raises(InvalidValueError, match="--peers: there is no 'numpy'"):
        choices.choose_peers(["numpy"])


def test_a_peer_that_is_not_installed_is_refused_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "find_spec", lambda name: None if name == "vllm" else object())
    assert choices.choose_peers(None) == {"torch", "flashinfer"}
    with pytest.raises(InvalidValueError, match="vllm is not installed"):
        choices.choose_peers(["torch", "vllm"])


@pytest.mark.parametrize(
    ("section", "measured", "num_peers"),
    [("decode", shapes.DECODE, 8), ("prefill", shapes.PREFILL, 5), ("merge", shapes.MERGE, 3)],
)
def test_every_shape_with_peers_has_all_their_stored_figures(
    section: str, measured: Sequence[object], num_peers: int
) -> None:
    stored = stored_peers()
    assert {str(shape) for shape in measured} == stored.us[section].keys()
    for shape in measured:
        figures = stored.at(section, str(shape))
        assert len(figures) == num_peers
        assert min(figures.values()) > 1.0  # microseconds


def test_stored_figures_say_where_they_come_from() -> None:
    assert "NVIDIA H200" in stored_peers().source
    assert "vllm 0.24.0" in stored_peers().source
    assert stored_peers().at("decode", "no such shape") == {}


def test_bytes_and_operations_of_shapes() -> None:
    assert shapes.DecodeShape(2, 8, 4, 64, 100).kv_bytes == 2 * 2 * 100 * 4 * 64 * 2
    assert shapes.PrefillShape(10, 8, 4, 64).flops == 4 * 10 * 10 * 8 * 64 // 2
    assert shapes.BlocksShape(3, 12, 12, 64).num_bytes == 3 * 12 * 2 * 24 * 1024
    assert shapes.PrefixShape(64, 12, 12, 64, 1024, 64).kv_bytes == 2 * (1024 + 64 * 64) * 12 * 64 * 2
    assert str(shapes.MergeShape(512, 16, 32)) == "512,16,32"


def test_inputs_are_rotated_past_the_l2() -> None:
    assert rotated_bytes(50 << 20) == 192 << 20
    assert rotated_bytes(128 << 20) == 384 << 20
    assert [num_sets(size, 100) for size in (1, 33, 50, 60, 1000)] == [100, 4, 2, 2, 2]
    assert [num_rounds(calls) for calls in (1, 2, 3, 8, 300)] == [8, 4, 2, 1, 1]


def test_samples_fill_a_time_budget() -> None:
    assert [num_samples(us) for us in (0.0, 100.0, 600.0, 1e6)] == [200, 200, 100, 10]


def test_timing_is_the_median_call() -> None:
    assert Timing.of([80.0, 20.0, 40.0], 4) == Timing(10.0, 5.0, 20.0, 3)


def contender(error: float, name: str = "peer") -> Contender:
    def prepare() -> list[Call]:
        return [lambda: None]

    return Contender(name=name, prepare=prepare, check=lambda _: error, measure=lambda _: Timing(8.0, 7.0, 9.0, 10))


def run(*contenders: Contender) -> tuple[list[str], list[dict[str, object]]]:
    said: list[str] = []
    bench = Bench(limits=Limits(copy=1000.0), peers=frozenset(), say=said.append)
    figures = bench.run(WORK, contenders)
    return said, [{name: getattr(figure, name) for name in figure.__slots__} for figure in figures]


def test_figure_holds_bandwidth_and_arithmetic() -> None:
    _, [figure] = run(contender(1e-4))
    assert figure["us"] == 8.0
    assert (figure["gb_s"], figure["percent_of_limit"], figure["tflop_s"]) == (500.0, 50.0, 1.0)
    assert figure["host_us"] is None
    json.dumps(figure)


@pytest.mark.parametrize("error", [0.5, nan])
def test_wrong_result_has_no_time(error: float) -> None:
    said, [figure] = run(contender(error))
    assert figure["us"] is None
    assert "wrong result" in said[0]


def test_contender_that_cannot_run_leaves_the_others_alone() -> None:
    def refuse() -> list[Call]:
        raise RuntimeError("no such\narchitecture")

    broken = Contender(name="broken", prepare=refuse, check=lambda _: 0.0)
    said, [first, second] = run(broken, contender(0.0))
    assert first["failed"] == "RuntimeError: no such architecture"
    assert second["failed"] is None
    assert said[0] == "decode 1,2 broken: RuntimeError: no such architecture"
    assert said[1] == "decode 1,2 peer: 8.00 us 500 GB/s 50 % 1 TFLOP/s error 0.0e+00"


def test_peers_are_those_chosen() -> None:
    makers = {"torch": lambda inputs: [contender(inputs)], "vllm": lambda inputs: [contender(inputs)] * 2}
    bench = Bench(limits=Limits(copy=1.0), peers=frozenset({"vllm"}), say=print)
    assert len(bench.peers_of(makers, 0.0)) == 2


def test_errors_of_results() -> None:
    reference = torch.tensor([3.0, 4.0])
    assert relative_error(reference + torch.tensor([0.0, 0.5]), reference) == pytest.approx(0.1)
    assert copy_error([(reference, reference.clone())]) == 0.0
    assert copy_error([(reference, reference + 1)]) == float("inf")


def test_error_that_is_no_number_stays_out_of_the_json() -> None:
    _, [figure] = run(contender(nan, name="mine"))
    assert figure["failed"] == "wrong result, error nan"
    assert figure["error"] is None
