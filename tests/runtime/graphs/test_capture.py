"""That the kernels of a step are known before it is captured, all of them."""

from dataclasses import replace

import pytest
import torch

from pagedchat.jit import launch
from pagedchat.jit.builder import KernelBuilder
from pagedchat.jit.launch import KernelStore, rehearse
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.layer_chain import layers_to_run
from pagedchat.runtime.graphs.model_tensors import tensors_of
from tests.runtime.graphs.case import make_runner, tiny_model


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> KernelStore:
    """The package's kernels as at the start of a process."""
    store = launch._store
    monkeypatch.setattr(store, "_found", {})
    monkeypatch.setattr(store, "_loaded", {})
    return store


def missed(fresh: KernelStore, monkeypatch: pytest.MonkeyPatch, runner: CapturedRunner) -> list[str]:
    """Variants that are asked for when all steps are captured, and that nobody built ahead."""
    ahead: set[object] = set()
    build = KernelBuilder.build
    monkeypatch.setattr(
        "pagedchat.runtime.graphs.capture.build_ahead", lambda wanted, _index, quietly: ahead.update(wanted)
    )
    asked: list[object] = []

    def noting(self: KernelBuilder, variant: object, architecture: str) -> object:
        asked.append(variant)
        return build(self, variant, architecture)  # type: ignore[arg-type]

    monkeypatch.setattr(KernelBuilder, "build", noting)
    assert runner.prefills is not None
    for num_seqs in (1, 2, 4, 12, 20):
        runner.decodes.build_ahead(num_seqs, 100)
    for num_tokens in (32, 500):
        runner.prefills.build_ahead(num_tokens)
    assert asked == []
    for num_seqs in (1, 2, 4, 12, 20):
        assert runner.decodes.prepare(num_seqs, 100)
    for num_tokens in (32, 500):
        assert runner.prefills.prepare(num_tokens)
    assert len(asked) > 5
    return sorted(str(variant) for variant in set(asked) - ahead)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["opt", "llama", "qwen3", "gelu"])
def test_what_is_captured_was_built_ahead(fresh: KernelStore, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    model = tiny_model(family, "cuda", torch.float16, num_layers=4)
    runner = make_runner(model, 200, captured=True, max_num_tokens=2048)
    assert missed(fresh, monkeypatch, runner) == []


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["gemma2", "gemma3", "cohere2", "phi"])
def test_what_layers_of_several_kinds_launch_was_built_ahead(
    fresh: KernelStore, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    runner = make_runner(tiny_model(family, "cuda", torch.float16), 200, captured=True, max_num_tokens=2048)
    assert missed(fresh, monkeypatch, runner) == []


def test_a_rehearsal_takes_the_first_layer_the_last_and_of_the_others_one_of_each_kind() -> None:
    model = tensors_of(tiny_model("llama", "cpu", torch.float32, num_layers=6), 64)
    assert model is not None
    layers = list(model.layers)
    layers[4] = replace(layers[4], sliding_window=20)
    fed = layers[5].fed
    layers[5] = replace(layers[5], feed=replace(fed, down=replace(fed.down, bias=torch.zeros(256))))
    model = replace(model, layers=layers)
    assert list(layers_to_run(model)) == layers
    with rehearse():
        ran = [layer.layer_idx for layer in layers_to_run(model)]
    assert ran == [0, 1, 4, 5]


def test_without_kernels_nothing_is_built_ahead() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 20, captured=True)
    assert runner.decodes.build_ahead(1, 100) is None
