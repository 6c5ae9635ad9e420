"""The steps that a store builds are those that `which_step` names, on a GPU that is a stand-in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.ops.whole_step.persistent_decode import PersistentDecode
from pagedchat.runtime.graphs import step_wants
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.fused_step import FusedStep
from pagedchat.runtime.graphs.decode.layers_step import LayersStep
from pagedchat.runtime.graphs.decode.library_step import LibraryStep
from pagedchat.runtime.graphs.decode.persistent_step import PersistentStep
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers
from pagedchat.runtime.graphs.decode.steps import DrawnStep, ModuleStep, Step
from pagedchat.runtime.graphs.decode.store import StepStore
from pagedchat.runtime.graphs.decode.warpgroup_step import WarpgroupStep
from pagedchat.runtime.graphs.model_tensors import screen_of_model, setting_of, tensors_of
from pagedchat.runtime.graphs.which_step import (
    FUSED,
    LAYERS,
    LIBRARY,
    MODULES,
    SCREENED_HEAD,
    WARPGROUPS,
    which_decode,
)
from pagedchat.runtime.graphs.whole_steps import CLUSTERS, CLUSTERS_SCREENED, ONE_LAUNCH, SCREENED, WHOLE_STEPS
from pagedchat.runtime.step.sampler import Choice
from tests.runtime.graphs.case import BLOCK_SIZE, MODEL_LEN, VOCAB_SIZE, make_runner, tiny_model

CLASSES: dict[str, type[object]] = {
    **dict.fromkeys(WHOLE_STEPS, PersistentStep),
    LAYERS: LayersStep,
    FUSED: FusedStep,
    WARPGROUPS: WarpgroupStep,
    LIBRARY: LibraryStep,
    MODULES: ModuleStep,
}
BUCKETS = [Bucket(rows, 512, groups, 512 if groups else 0) for rows in (1, 2, 8, 16, 64) for groups in (0, 2)]


def make_store(family: str, dtype: torch.dtype, architecture: str) -> StepStore:
    """Over a tiny model on the CPU, which takes it for a GPU of the architecture."""
    model = tiny_model(family, "cpu", dtype, ffn_size=1536)
    backend: Any = make_runner(model, 8, captured=False).backend
    buffers = StateBuffers(Bucket(64, MODEL_LEN), BLOCK_SIZE, backend.device, VOCAB_SIZE)
    store = StepStore(model, backend, buffers, MODEL_LEN)
    assert store._setting == setting_of(model, backend)
    if architecture:
        store._setting = replace(store._setting, gpu=KNOWN_GPUS[architecture])
    return store


@contextmanager
def room(fits: bool) -> Iterator[None]:
    """Whether clusters find room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PersistentDecode, "fits_at_once", lambda self: fits or self._plan.cluster == 1)
        yield


def inner(step: Step) -> object:
    return step._step if isinstance(step, DrawnStep) else step


@pytest.mark.parametrize("architecture", ["", "sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("family", ["opt", "llama", "qwen3", "biased", "gelu", "odd"])
def test_the_step_that_is_named_is_built(family: str, dtype: torch.dtype, architecture: str) -> None:
    store, used = make_store(family, dtype, architecture), set()
    for bucket in BUCKETS:
        for choice in ("greedy", "shortlist", "drawn"):
            name = which_decode(store._facts(bucket, choice)).name
            with room(fits=True):
                step = store._step(bucket, choice)
            assert type(inner(step)) is CLASSES[name]
            assert isinstance(step, DrawnStep) == (choice != "greedy")
            used.add(name)
    assert (MODULES in used) == (family == "odd")


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_layers_of_a_size_for_it_are_one_launch(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_wants, "_FEWEST_STREAMED", 0)
    store = make_store(family, torch.float16, "sm_90")
    store._without_trust = frozenset(WHOLE_STEPS)
    kinds = {Bucket(rows, 512): LayersStep for rows in (1, 2, 4, 8)}
    for bucket, kind in (kinds | {Bucket(8, 1024): FusedStep, Bucket(3, 512): FusedStep}).items():
        assert type(store._step(bucket, "greedy")) is kind


def test_without_room_for_clusters_a_step_without_them_is_built() -> None:
    store = make_store("opt", torch.float16, "sm_90")
    assert which_decode(store._facts(Bucket(1, 512), "greedy")).name == CLUSTERS_SCREENED
    assert which_decode(store._facts(Bucket(1, 512), "drawn")).name == CLUSTERS
    clusters = []
    for fits in (True, False):
        with room(fits):
            steps = [inner(store._step(Bucket(1, 512), choice)) for choice in ("greedy", "drawn")]
        plans = [step._decode._plan for step in steps if isinstance(step, PersistentStep)]
        clusters.append([(plan.cluster > 1, plan.screened_tiles > 0) for plan in plans])
    assert clusters == [[(True, True), (True, False)], [(False, True), (False, False)]]


def test_what_is_not_trusted_is_built_no_more() -> None:
    """Each choice of tokens is served by the next slower kind, and at last by the modules, which stay."""
    store = make_store("opt", torch.float16, "sm_90")
    bucket, names = Bucket(1, 512), []
    choices: list[Choice] = ["greedy", "drawn"] * 2 + ["greedy"] * 4
    for choice in choices:
        with room(fits=True):
            store._step(bucket, choice)
        names.append(store.distrust(bucket, choice))
    assert names == [CLUSTERS_SCREENED, CLUSTERS, SCREENED, ONE_LAUNCH, FUSED, WARPGROUPS, LIBRARY, ""]
    with room(fits=True):
        assert type(inner(store._step(Bucket(8, 512), "drawn"))) is CLASSES[MODULES]


def test_a_screened_head_makes_way_for_logits_before_the_step_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0)
    store = make_store("qwen3", torch.float16, "sm_90")
    bucket, names, ends = Bucket(8, 512), [], []
    choices: list[Choice] = ["shortlist", "drawn", "greedy"]
    assert store.choices(bucket) == ("greedy", "shortlist", "drawn")
    for choice in choices:
        step = inner(store._step(bucket, choice))
        assert isinstance(step, FusedStep | WarpgroupStep)
        ends.append(step._end is not None)
        names.append(store.distrust(bucket, choice))
    assert names == [SCREENED_HEAD, FUSED, WARPGROUPS]
    assert ends == [True, False, False]
    assert store.choices(bucket) == ("greedy", "drawn")


def test_whoever_draws_from_few_has_a_step_of_their_own_where_heads_are_screened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket, choice = Bucket(8, 512), "shortlist"
    store = make_store("qwen3", torch.float16, "sm_90")
    assert store._own_choice(bucket, choice) == "drawn"  # its head is small
    monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0)
    store = make_store("qwen3", torch.float16, "sm_90")
    assert store._own_choice(bucket, choice) == choice
    step = store._step(bucket, choice)
    assert isinstance(step, FusedStep)  # which draws by itself
    assert step._end is not None
    assert step._end._sampling is not None
    greedy = store._step(bucket, "greedy")
    assert isinstance(greedy, FusedStep)
    assert greedy._end is not None
    assert greedy._end._sampling is None


def test_a_step_serves_who_wants_less_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0)
    store = make_store("qwen3", torch.float16, "sm_90")
    store._at_first_use = False
    bucket, others = Bucket(4, 512), Bucket(8, 512)
    choices: tuple[Choice, ...] = ("drawn", "shortlist", "greedy")
    found: dict[Choice, list[Choice | None]] = {choice: [] for choice in choices}
    for captured in choices:
        step: Any = object()
        store._steps = {(others, captured): step}
        for choice in choices:
            serving = store.there(bucket, choice)
            found[choice].append(None if serving is None else serving.choice)
    assert found == {
        "drawn": ["drawn", None, None],
        "shortlist": ["drawn", "shortlist", None],
        "greedy": ["drawn", "shortlist", "greedy"],
    }


def test_all_steps_of_a_model_read_one_copy_of_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0)
    store = make_store("qwen3", torch.float16, "sm_90")
    steps = [store._step(Bucket(rows, 512), "greedy") for rows in (1, 64)]
    screens = [step._end._screen for step in steps if isinstance(step, FusedStep | WarpgroupStep) and step._end]
    assert len(screens) == 2
    assert screens[0] is screens[1]
    assert screens[0] is screen_of_model(store._model)


def test_the_tensors_are_those_of_the_model() -> None:
    for family in ("opt", "llama", "qwen3"):
        model = tiny_model(family, "cpu", torch.float16)
        tensors = tensors_of(model, MODEL_LEN)
        assert tensors is not None
        assert tensors is tensors_of(model, MODEL_LEN)
        known = {parameter.data_ptr() for parameter in model.parameters()}
        products = [part for layer in tensors.layers for part in (layer.qkv, layer.out, layer.up, layer.down)]
        assert {product.weight.data_ptr() for product in products} < known
        assert [layer.layer_idx for layer in tensors.layers] == [0, 1]
        assert tensors.sizes == setting_of(model, make_runner(model, 8, captured=False).backend).sizes  # type: ignore[arg-type]
        assert {(norm.kind, norm.eps) for layer in tensors.layers for norm in layer.norms_before} == {
            (tensors.last_norm.kind, tensors.last_norm.eps)
        }
    assert tensors_of(tiny_model("odd", "cpu", torch.float16), MODEL_LEN) is None


def test_norms_that_a_model_lacks_are_asked_for_in_vain() -> None:
    tensors = tensors_of(tiny_model("olmo2", "cpu", torch.float16), MODEL_LEN)
    assert tensors is not None
    with pytest.raises(ValueError, match="layer 0 has no norm before each of its halves"):
        _ = tensors.layers[0].norms_before
    with pytest.raises(ValueError, match="no norm behind its last layer"):
        _ = replace(tensors, norm=None).last_norm
