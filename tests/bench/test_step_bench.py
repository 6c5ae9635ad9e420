"""Where a step's time goes: sums over made-up kernels and steps, and a real engine on the CPU."""

from pathlib import Path

import pytest
import torch

from pagedchat.bench.random_checkpoint import write_checkpoint
from pagedchat.bench.step import measure
from pagedchat.bench.step.host import TimedStep, read_host
from pagedchat.bench.step.kinds import OTHERS, kind_of
from pagedchat.bench.step.measure import StepBench
from pagedchat.bench.step.report import gpu_table, host_table
from pagedchat.bench.step.trace import Kernel, read_steps
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.events import Timings
from tests.bench.engine_fakes import TINY_OPT


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
        ("streamed_vocabulary", "next token"),
        ("reshape_and_cache", "cache writes and slots"),
        ("add_norm", "norms"),
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
