"""Whole steps with prompts on a CPU: what the modules say, in any company and in any pieces."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pagedchat.models.config import describe_model
from pagedchat.models.cpu_linear import use_cpu_linears
from pagedchat.models.decoder import Decoder
from pagedchat.models.loader import load_weights
from pagedchat.ops.cpu.kernels import cpu_kernels
from pagedchat.runtime.cpu import prompts as prompts_module
from pagedchat.runtime.cpu import step as step_module
from pagedchat.runtime.cpu.runner import CpuModelRunner
from pagedchat.runtime.step.batch_inputs import BatchInputs
from tests.runtime.cpu.test_few_bits import MIXTURES
from tests.runtime.cpu.test_step import TOKENS, runner_of, saved
from tests.runtime.drive import Driver

CPU = torch.device("cpu")
FORMS = ["f32", "bf16", "int8", "int4"]
TEXT = [(7 * i) % 290 + 3 for i in range(90)]


@pytest.fixture(scope="module", autouse=True)
def need_kernels() -> None:
    kernels = cpu_kernels()
    if kernels is None or not kernels.has_prompts:
        pytest.skip("no CPU kernels for prompts")


def type_of(form: str) -> torch.dtype:
    return torch.bfloat16 if form == "bf16" else torch.float32


def decoder(folder: Path, form: str) -> Decoder:
    kernels = cpu_kernels()
    assert kernels is not None
    has = {"f32": kernels.has_fast_tiles, "bf16": kernels.has_fast_tiles or kernels.has_long_products}
    if not has.get(form, True):
        pytest.skip("a library multiplies prompts")
    model = load_weights(
        describe_model("wide", folder), attention="", dtype=type_of(form), device=CPU,
        quantization=form if form in ("int8", "int4") else None, kernels=kernels,
    )  # fmt: skip
    assert isinstance(model, Decoder)
    use_cpu_linears(model, available=0)
    return model


def heard(
    runner: CpuModelRunner, texts: list[list[int]], *, whole: bool = True, chunk: int = 1000, steps: int = 1
) -> list[torch.Tensor]:
    """Logits of every step."""
    runner.whole_steps = whole
    logits: list[torch.Tensor] = []
    drive, forward = Driver(runner, chunk), runner.forward

    def forwarded(inputs: BatchInputs) -> torch.Tensor:
        logits.append(forward(inputs).clone())
        return logits[-1]

    runner.forward = forwarded  # type: ignore[method-assign]
    for text in texts:
        drive.add(text)
    for _ in range(steps):
        drive.step(1000)
    return logits


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, form) for name in ("llama", "qwen2", "opt", "mistral", "qwen3") for form in FORMS),
        *((name, form) for name in MIXTURES for form in ("int8", "int4")),
    ],
)
def test_prompts_are_what_the_modules_say(name: str, form: str, tmp_path: Path) -> None:
    model = decoder(saved(tmp_path, name), form)
    texts = [TEXT, TOKENS[:1], TOKENS[:20], TOKENS[7:45]]
    said = {}
    for whole in (True, False):
        runner = runner_of(model, num_blocks=200, dtype=type_of(form))
        assert runner.prompts is not None
        said[whole] = heard(runner, texts, whole=whole)[0]
    assert said[True].dtype == type_of(form)
    off = (said[True].float() - said[False].float()).norm(dim=1)
    # Modules round each result to bfloat16; of few bits some inputs are brought to the next of 255 steps.
    assert (off < (0.05 if form == "bf16" else 0.03) * said[False].float().norm(dim=1)).all()


@pytest.mark.parametrize(
    ("name", "form"),
    [("qwen2", "bf16"), ("qwen2", "int8"), ("qwen2", "int4"), ("qwen2_moe", "int8"), ("gpt_oss", "int4")],
)
def test_pieces_and_company_change_no_bit(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = decoder(saved(tmp_path, name), form)
    whole = heard(runner_of(model, num_blocks=200, dtype=type_of(form)), [TEXT])[0]
    monkeypatch.setattr(prompts_module, "ROWS_AT_ONCE", 37)
    others = [TEXT[5:40], TEXT[3:9], TEXT]
    together = heard(runner_of(model, num_blocks=200, dtype=type_of(form)), others)[0]
    kernels = cpu_kernels()
    # Where more than 32 rows in bfloat16 have another kernel, a piece of fewer may round the other way.
    rounding = 2**-7 if form == "bf16" and kernels is not None and kernels.has_long_products else 0
    torch.testing.assert_close(together[-1], whole[0], rtol=rounding, atol=0)
    pieces = heard(runner_of(model, num_blocks=200, dtype=type_of(form)), [TEXT], chunk=40, steps=3)
    torch.testing.assert_close(pieces[-1][-1], whole[0], rtol=rounding, atol=0)


@pytest.mark.parametrize("name", ["qwen2", "mistral"])
def test_long_texts_in_parts_change_nothing_of_short_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = decoder(saved(tmp_path, name), "int8")

    def fifth(texts: list[list[int]]) -> torch.Tensor:
        return heard(runner_of(model, num_blocks=200), texts, steps=5)[-1]

    long, short = TEXT, TEXT[20:31]
    in_one = fifth([long])
    monkeypatch.setattr(step_module, "PART_TOKENS", 16)
    together, alone, alone_too = fifth([long, short]), fifth([short]), fifth([long])
    assert torch.equal(together[1], alone[0])
    assert torch.equal(together[0], alone_too[0])
    off = (in_one[0] - alone_too[0]).norm()
    assert off < 0.03 * in_one[0].norm()
    assert off > 0 or name == "mistral"  # whose window has one part


@pytest.mark.parametrize(("name", "form"), [("qwen2", "int8"), ("mistral", "int4"), ("qwen2_moe", "int8")])
def test_a_row_has_the_same_logits_whichever_others_are_wanted(name: str, form: str, tmp_path: Path) -> None:
    runner = runner_of(decoder(saved(tmp_path, name), form), num_blocks=200)
    forward, seen = runner.forward, []

    def compared(inputs: BatchInputs) -> torch.Tensor:
        every = torch.arange(inputs.token_ids.shape[1])
        of_all = forward(replace(inputs, last_rows=every)).clone()
        assert forward(replace(inputs, last_rows=every[:0])).shape == (0, of_all.shape[1])
        some = forward(inputs)
        assert torch.equal(some, of_all[inputs.last_rows])
        seen.append((len(of_all), len(some)))
        return some

    runner.forward = compared  # type: ignore[method-assign]
    drive = Driver(runner, 60)
    for text in (TEXT[5:25], TEXT[20:61], TEXT):
        drive.add(text)
    while drive.step(1):
        pass
    assert seen == [(60, 1), (60, 1), (31, 1)]


def test_memory_grows_with_the_largest_step_and_small_ones_go_on(tmp_path: Path) -> None:
    model = decoder(saved(tmp_path, "qwen2"), "int8")
    long = [TEXT[i % 90] for i in range(300)]
    runner = runner_of(model, num_blocks=400)
    first = heard(runner, [TEXT])[0]
    heard(runner, [long])
    assert torch.equal(heard(runner, [TEXT])[0], first)


def test_models_in_float32_leave_long_prompts_to_the_library(tmp_path: Path) -> None:
    model = load_weights(
        describe_model("wide", saved(tmp_path, "llama")), attention="", dtype=torch.float32, device=CPU
    )
    assert isinstance(model, Decoder)
    use_cpu_linears(model, available=0)
    runner = runner_of(model)
    assert runner.step is not None
    kernels, prompts = cpu_kernels(), runner.prompts
    assert kernels is not None
    if kernels.has_fast_tiles:
        assert prompts is not None
        assert [prompts.takes(num_rows) for num_rows in (1, kernels.most_rows, kernels.most_rows + 1)] == [
            True,
            True,
            False,
        ]
    else:
        assert prompts is None
