"""Where a step's time goes: sums over made-up kernels and steps, and a real engine on the CPU."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.bench.step import measure
from pagedchat.bench.step.host import HostTimes, TimedStep, read_host
from pagedchat.bench.step.kinds import OTHERS, kind_of
from pagedchat.bench.step.measure import StepBench, StepFigure, _model_of
from pagedchat.bench.step.products import DOWN, HEAD, OUT, QKV, ROUTER, UP, places_of, product_bytes
from pagedchat.bench.step.report import gpu_table, host_table, products_table
from pagedchat.bench.step.trace import Kernel, read_steps
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.events import Timings
from pagedchat.models.config import describe_model
from pagedchat.models.loader import load_weights
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.step import model_runner
from pagedchat.runtime.step.sampler import sample
from pagedchat.runtime.step.sampling_row import SamplingRow
from tests.bench.engine_fakes import TINY_OPT
from tests.runtime.graphs.case import VOCAB_SIZE, make_runner, tiny_model


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("decode_split", "attention"),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "products"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "products"),
        ("small_batch_linear", "products"),
        ("qkv_to_cache", "products"),
        ("streamed_linear", "products"),
        ("streamed_qkv", "products"),
        ("wide_gates", "products"),
        ("expert_linear", "experts"),
        ("expert_few_bits", "experts"),
        ("route_few", "experts"),
        ("sum_experts", "experts"),
        ("streamed_layers", "whole layers"),
        ("streamed_vocabulary", "next token"),
        ("screen_vocabulary", "next token"),
        ("choose_screened", "next token"),
        ("list_screened", "next token"),
        ("sample_listed", "next token"),
        ("reshape_and_cache", "cache writes and slots"),
        ("add_norm", "norms"),
        ("reduce_add_norm", "sums over ranks"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "sums over ranks"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half>", "norms"),
        ("logits_argmax", "next token"),
        ("embed_tokens", "embedding"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, relu>", OTHERS),
    ],
)
def test_a_kernel_is_known_by_its_name(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def step_at(start: float, launch: int) -> list[Kernel]:
    """50 us: a product, an attention that begins before it ends, a gap of 5 us, a norm."""
    return [
        Kernel("small_batch_linear", start, start + 20, launch),
        Kernel("decode_split", start + 15, start + 35, launch),
        Kernel("add_norm", start + 40, start + 50, launch),
    ]


def test_charges_gaps_and_idle_time_add_up_to_the_period() -> None:
    kernels = [kernel for number in range(4) for kernel in step_at(100.0 * number, number)]
    trace = read_steps(reversed(kernels), 4)
    assert trace is not None
    assert {share.kind: share.us for share in trace.kinds} == {"products": 20, "attention": 15, "norms": 10}
    assert [share.count for share in trace.kinds] == [1, 1, 1]
    assert (trace.num_steps, trace.period_us, trace.busy_us, trace.gaps_us, trace.idle_us) == (3, 100, 45, 5, 50)
    assert trace.idle_percent == 50


def test_a_copy_between_steps_is_no_step() -> None:
    copies = [Kernel("Memcpy HtoD", 100.0 * number + 60, 100.0 * number + 70, 50 + number) for number in range(3)]
    trace = read_steps([*step_at(0, 0), *step_at(100, 1), *step_at(200, 2), *copies], 3)
    assert trace is not None
    assert (trace.num_steps, trace.period_us, trace.busy_us, trace.gaps_us, trace.idle_us) == (2, 100, 55, 15, 30)


def test_steps_that_are_not_captured_are_not_told_apart() -> None:
    eager = [Kernel("nvjet_gemm", 10.0 * number, 10.0 * number + 5, number) for number in range(40)]
    assert read_steps(eager, 2) is None
    assert read_steps([], 2) is None


LAYER = ["streamed_qkv", "decode_split", "nvjet_tst_out", "nvjet_tst_up", "activate", "nvjet_tst_down"]


def test_products_are_known_by_their_place() -> None:
    halves = ["add_norm", *LAYER[:3], "cublasLt::splitKreduce_kernel", *LAYER[3:]]
    places = places_of(["embed_tokens", *LAYER, *halves, "streamed_vocabulary", "finish_logits"], 2)
    first = [QKV, "", OUT, UP, "", DOWN]
    assert places == ["", *first, "", *first[:3], OUT, *first[3:], HEAD, ""]
    assert places_of([*LAYER, *LAYER, "nvjet_tst_head"], 2)[-1] == HEAD


def test_products_of_a_mixture_have_its_router_among_them() -> None:
    layer = [
        "streamed_linear",
        "heads_to_cache",
        "decode_split",
        "streamed_linear",
        "add_norm",
        "small_batch_linear",
    ]
    experts = ["route_few", "expert_linear", "expert_linear", "sum_experts"]
    order = QKV, OUT, ROUTER
    places = places_of(["embed_tokens", *layer, *experts, *layer, *experts, "streamed_vocabulary"], 2, order)
    one = [QKV, "", "", OUT, "", ROUTER, *[""] * 4]
    assert places == ["", *one, *one, HEAD]
    assert places_of([*layer, *experts, "streamed_vocabulary"], 1) == []


@pytest.mark.parametrize("names", [LAYER, [*LAYER, *LAYER, "nvjet"], ["streamed_layers", "nvjet"], []])
def test_steps_in_another_order_have_no_products(names: list[str]) -> None:
    assert places_of(names, 1 if names != LAYER else 2) == []


def test_of_a_screened_head_half_of_its_bytes_are_read() -> None:
    weights = {QKV: 30_000, OUT: 10_000, UP: 40_000, DOWN: 20_000, HEAD: 50_000}
    end = ["screen_rows", "screen_vocabulary", "choose_screened"]
    kernels = [
        Kernel(name, 100.0 * step + 10 * i, 100.0 * step + 10 * i + 10, step)
        for step in range(3)
        for i, name in enumerate([*LAYER, *end])
    ]
    trace = read_steps(kernels, 3, weights, num_layers=1)
    assert trace is not None
    products = {share.name: (share.us, share.weight_bytes) for share in trace.products}
    assert products == {
        QKV: (10, 30_000),
        OUT: (10, 10_000),
        UP: (10, 40_000),
        DOWN: (10, 20_000),
        HEAD: (10, 25_000),
    }


def test_products_are_charged_and_their_weights_read() -> None:
    weights = {QKV: 30_000, OUT: 10_000, UP: 40_000, DOWN: 20_000, HEAD: 50_000}
    kernels = [
        Kernel(name, 100.0 * step + 10 * i, 100.0 * step + 10 * i + 10, step)
        for step in range(3)
        for i, name in enumerate([*LAYER, "streamed_vocabulary"])
    ]
    trace = read_steps(kernels, 3, weights, num_layers=1)
    assert trace is not None
    assert {share.name: (share.us, share.gb_s) for share in trace.products} == {
        QKV: (10, 3), OUT: (10, 1), UP: (10, 4), DOWN: (10, 2), HEAD: (10, 5),
    }  # fmt: skip
    host = HostTimes(num_steps=1, step_us=1.0, phases_us={})
    table = products_table([StepFigure(num_chats=1, host=host, gpu=trace)], 10.0)
    assert table is not None
    assert dict(table.rows)[UP] == "10.0: 4, 40 %"
    untold = read_steps(kernels, 3)
    assert products_table([StepFigure(num_chats=1, host=host, gpu=untold)], 10.0) is None


def test_bytes_of_a_models_products(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_OPT, torch.float32, torch.device("cpu"))
    model = load_weights(
        describe_model(str(tmp_path), tmp_path), attention="", dtype=torch.float32, device=torch.device("cpu")
    )
    found = product_bytes(model)
    layers, width, middle = TINY_OPT["num_hidden_layers"], TINY_OPT["hidden_size"], TINY_OPT["ffn_dim"]
    assert found == {
        QKV: 4 * layers * 3 * width * width, OUT: 4 * layers * width * width, UP: 4 * layers * width * middle,
        DOWN: 4 * layers * width * middle, HEAD: 4 * TINY_OPT["vocab_size"] * width,
    }  # fmt: skip
    assert product_bytes(torch.nn.Linear(2, 2)) == {}
    width, heads = 256, 4 * 64 + 2 * 2 * 64
    assert product_bytes(tiny_model("few_experts", "cpu", torch.float32)) == {
        QKV: 4 * 2 * heads * width, OUT: 4 * 2 * 4 * 64 * width, ROUTER: 4 * 2 * 8 * width,
        HEAD: 4 * VOCAB_SIZE * width,
    }  # fmt: skip
    for family in ("many_experts", "all_experts"):  # not in every layer; one that all tokens share
        assert product_bytes(tiny_model(family, "cpu", torch.float32)) == {}


def test_the_model_of_a_captured_runner_is_found() -> None:
    model = tiny_model("llama", "cpu", torch.float32)
    runner = make_runner(model, 20, captured=True)
    assert isinstance(runner, CapturedRunner)
    assert [_model_of(runner), _model_of(runner.eager), _model_of(object())] == [model, model, None]


def test_host_phases_of_steps_in_which_all_decode() -> None:
    timings = Timings(1e-6, 0.0, 5e-6, 1e-6, 2e-6, 3e-6)
    prefill = TimedStep(0.0, 1.0, 8, 100, timings)
    decodes = [TimedStep(1 + number * 20e-6, 1 + number * 20e-6 + 15e-6, 8, 0, timings) for number in range(5)]
    others = TimedStep(2.0, 3.0, 7, 0, timings)
    host = read_host([prefill, *decodes, others], 8)
    assert host is not None
    expected = {
        "schedule": 1,
        "launch": 3,
        "copy": 0,
        "wait": 5,
        "sample": 1,
        "update": 2,
        "report": 3,
        "caller": 5,
    }
    assert host.phases_us == pytest.approx(expected, abs=1e-3)
    assert (host.num_steps, host.step_us, host.busy_us) == (4, pytest.approx(20), pytest.approx(15))
    assert read_host([prefill, others], 8) is None


def test_a_real_engine_is_timed_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "trace_kernels", lambda work: work() or step_at(0, 0) + step_at(100, 1))
    write_checkpoint(tmp_path, TINY_OPT, torch.float32, torch.device("cpu"))
    bench = StepBench(
        EngineConfig(
            model=ModelConfig(model=str(tmp_path), device="cpu", skip_tokenizer_init=True),
            cache=CacheConfig(num_blocks=64),
        )
    )
    figures = [bench.measure(num_chats, 40, 10) for num_chats in (1, 3)]
    assert [figure.host.num_steps for figure in figures] == [9, 9]
    gpu, host = gpu_table(figures), host_table(figures)
    assert gpu.header == ("us a step, traced (launches)", "1 chat", "3 chats")
    assert gpu.rows[0] == ("products", "20.0 (1)", "20.0 (1)")
    assert {row[0]: row[1] for row in gpu.rows}["idle between steps, %"] == "50.0"
    assert [row[0] for row in host.rows][-2:] == ["host without the wait", "whole step"]
    assert all(figure.host.phases_us["caller"] > 0 for figure in figures)


def test_tokens_are_drawn_as_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "trace_kernels", lambda work: work() or step_at(0, 0) + step_at(100, 1))
    write_checkpoint(tmp_path, TINY_OPT, torch.float32, torch.device("cpu"))
    model = ModelConfig(model=str(tmp_path), device="cpu", skip_tokenizer_init=True)
    config = EngineConfig(model=model, cache=CacheConfig(num_blocks=64))
    seen = set[tuple[float, int, float]]()

    def noted(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> list[int]:
        seen.update((row.params.temperature, row.params.top_k, row.params.top_p) for row in rows)
        return sample(logits, rows)

    monkeypatch.setattr(model_runner, "sample", noted)
    StepBench(config, SamplingParams(temperature=0.7, top_k=20, top_p=0.8)).measure(2, 40, 10)
    assert seen == {(0.7, 20, 0.8)}
