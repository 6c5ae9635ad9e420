from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import MistralModel

from pagedchat import LLM, SamplingParams
from pagedchat.bench.random_checkpoint import OPT_125M, write_checkpoint
from pagedchat.cli import main as cli
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.engine.output import ModelRunnerOutput
from pagedchat.errors import ModelError
from pagedchat.layers.arithmetic import InvariantArithmetic, use_arithmetic
from pagedchat.models.native_model import NativeModel
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.runtime.graphs import step_wants
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode import screened_end
from pagedchat.runtime.graphs.decode.decode_steps import BegunDecodes, DecodeSteps
from pagedchat.runtime.graphs.decode.fused_step import FusedStep
from pagedchat.runtime.graphs.decode.library_step import LibraryStep
from pagedchat.runtime.graphs.decode.persistent_step import PersistentStep
from pagedchat.runtime.graphs.decode.steps import ModuleStep
from pagedchat.runtime.graphs.prefill.forward import MergedForward, ModuleForward
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.check_record import LeftOut, keep_check, last_check
from pagedchat.runtime.loading.self_check import SelfCheck, first_passes, logits_without_cache, rounded_otherwise
from pagedchat.runtime.step.model_runner import TorchModelRunner
from tests.helpers_models import VOCAB_SIZE, make_checkpoint
from tests.runtime.drive import eager_of
from tests.runtime.graphs.case import make_runner, tiny_model


@pytest.fixture(scope="module", params=["native", "transformers"])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TorchModelRunner:
    folder = make_checkpoint(tmp_path_factory.mktemp("model"), "mistral")
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, device="cpu", implementation=request.param)
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=4, block_size=4))).runner
    assert isinstance(loaded, TorchModelRunner)
    return loaded


def test_good_model_passes_and_keeps_our_attention(runner: TorchModelRunner) -> None:
    SelfCheck("tiny", runner, VOCAB_SIZE).refuse_if_wrong()
    if not isinstance(runner.model, NativeModel):
        assert runner.model.config._attn_implementation == "pagedchat"


@pytest.mark.parametrize("what", ["scale", "window", "cache", "state"])
def test_model_with_other_attention_is_refused(
    runner: TorchModelRunner, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = runner.backend
    if what == "scale":
        attend = backend.attend
        monkeypatch.setattr(backend, "attend", lambda *args, scale, **kw: attend(*args, scale=scale * 2, **kw))
    elif what == "window":
        attend = backend.attend
        wide = {"sliding_window": None}
        monkeypatch.setattr(backend, "attend", lambda *args, **kw: attend(*args, **kw | wide))
    elif what == "cache":
        monkeypatch.setattr(backend, "write", lambda *_: None)
        backend.cache.zero_()
    else:  # a layer that looks at the whole text of its forward pass, as recurrent ones do
        native = isinstance(runner.model, NativeModel)
        mlp = (runner.model if native else runner.model.model).layers[0].mlp
        forward = mlp.forward
        monkeypatch.setattr(mlp, "forward", lambda rows: forward(rows.cumsum(dim=-2)))
    with pytest.raises(ModelError, match="tiny gives other results with the paged cache"):
        SelfCheck("tiny", runner, VOCAB_SIZE).refuse_if_wrong()


@pytest.mark.parametrize("error", [TypeError("no such argument"), RuntimeError("sizes differ"), KeyError("x")])
def test_whatever_a_model_raises_at_first_is_a_sentence(error: Exception) -> None:
    words = rf"^m does not run with the paged cache: {type(error).__name__}: "
    with pytest.raises(ModelError, match=words), first_passes("m"):
        raise error


@pytest.mark.parametrize("error", [ModelError("Known."), MemoryError(), RuntimeError("CUDA out of memory.")])
def test_what_has_words_already_goes_through(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, first_passes("m"):
        raise error
    assert caught.value is error


def test_a_model_whose_modules_want_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way through the whole of loading."""

    def want(*_: object, **__: object) -> None:
        raise ValueError("Input language unknown")

    monkeypatch.setattr(MistralModel, "forward", want)
    folder = make_checkpoint(tmp_path, "mistral")
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, device="cpu", implementation="transformers")
    with pytest.raises(ModelError, match="does not run with the paged cache: ValueError: Input language unknown"):
        load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=4, block_size=4)))


@pytest.mark.parametrize("factor", [1, -1, float("nan")])
def test_a_captured_decode_that_is_off_is_replaced_by_the_next_slower_one(
    factor: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute = LibraryStep.__call__
    monkeypatch.setattr(LibraryStep, "__call__", lambda step: factor * compute(step))
    captured = tiny_captured_runner(num_blocks=4)
    assert check_of(captured).allows_decodes(captured.decodes)
    tries = 1 if factor == 1 else 2
    assert captured.decodes.num_replays == 2 * tries  # one chooses the most likely token, one has logits for sure
    told = [record.message for record in caplog.records]
    words = f"since one is off by {2 * abs(factor):.2g}: the next slower kind is taken."
    assert told == ([] if factor == 1 else [f"Steps as library products are left out, {words}"])
    assert check_of(captured).allows_decodes(captured.decodes)  # it stays so
    assert len(caplog.records) == len(told)


def test_where_no_captured_decode_is_right_there_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (LibraryStep, ModuleStep):
        compute = step.__call__
        monkeypatch.setattr(step, "__call__", lambda step, compute=compute: -compute(step))
    captured = tiny_captured_runner(num_blocks=4)
    assert not check_of(captured).allows_decodes(captured.decodes)
    told = [record.message for record in caplog.records]
    assert told[1:] == ["Steps are not captured, since a captured one is off by 2."]


def test_a_captured_decode_that_chooses_another_token_is_found_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    finish = DecodeSteps.finish

    def choose_another(decodes: DecodeSteps, begun: BegunDecodes) -> ModelRunnerOutput:
        output = finish(decodes, begun)
        output.token_ids[0][0] = int(decodes.last_logits[0].argmin())
        return output

    monkeypatch.setattr(DecodeSteps, "finish", choose_another)
    captured = tiny_captured_runner(num_blocks=4)
    assert not check_of(captured).allows_decodes(captured.decodes)
    assert "Steps are not captured" in caplog.text


@pytest.mark.parametrize("wrong", [None, "screened_argmax", "screened_draw"])
def test_steps_without_logits_are_tried_in_both_forms(
    wrong: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a GPU that screens heads."""
    monkeypatch.setattr(step_wants, "_LEAST_SCREENED", 0)
    model = tiny_model("qwen3", "cpu", torch.bfloat16)
    captured = make_runner(model, num_blocks=4, captured=True, max_num_tokens=64)
    store = captured.decodes.store
    store._setting = replace(store._setting, gpu=KNOWN_GPUS["sm_90"])
    assert captured.decodes.choices(1, 20) == ("greedy", "shortlist", "drawn")

    def choose_another(op: Callable[..., None], state: DecodeState, *rest: Any, **options: Any) -> None:
        op(state, *rest, **options)
        state.replace((state.token_ids + 1) % 2)

    if wrong is not None:
        monkeypatch.setattr(screened_end, wrong, partial(choose_another, getattr(screened_end, wrong)))
    assert check_of(captured).allows_decodes(captured.decodes)
    assert captured.decodes.num_replays == (3 if wrong is None else 5)
    told = [record.message.partition(" are")[0] for record in caplog.records]
    assert told == ([] if wrong is None else ["Steps as screened head"])


def off(compute: Callable[..., None]) -> Callable[..., None]:
    """A forward pass that writes its logits, the last argument, with the other sign."""

    def compute_wrongly(*args: Any) -> None:
        compute(*args)
        args[-1].mul_(-1)

    return compute_wrongly


@pytest.mark.parametrize("wrong", [(), (MergedForward,), (MergedForward, ModuleForward)], ids=len)
def test_captured_prefills_that_are_off_are_replaced(
    wrong: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for forward in wrong:
        monkeypatch.setattr(forward, "__call__", off(forward.__call__))
    captured = tiny_captured_runner(num_blocks=4)
    assert captured.prefills is not None
    assert check_of(captured).allows_prefills(captured.prefills) == (len(wrong) < 2)
    told = [record.message for record in caplog.records]
    assert (
        told
        == [
            "Prefills as merged launches are left out, since one is off by 2: the next slower kind is taken.",
            "Prefills are not captured, since a captured one is off by 2.",
        ][: len(wrong)]
    )


def test_experts_that_rounding_changes_are_nobodys_mistake() -> None:
    """They are off by no more than the model itself where its layers are rounded otherwise."""
    captured = mixing_runner()
    check, ids = check_of(captured), list(range(20))
    before = logits_without_cache(eager_of(captured).model, ids, torch.device("cpu"))
    with rounded_otherwise(eager_of(captured).model):
        other = logits_without_cache(eager_of(captured).model, ids, torch.device("cpu"))
    assert 0 < (other - before).norm() < before.norm()
    assert torch.equal(logits_without_cache(eager_of(captured).model, ids, torch.device("cpu")), before)
    [(error, _), _] = check._errors_of_decodes(captured.decodes, 0)
    assert 0 < error < check._room_of_experts(20) < 0.1


@pytest.mark.parametrize(("error", "is_right"), [(0.3, True), (0.45, False), (nan, False)])
def test_of_a_mixture_the_text_in_the_middle_counts(
    error: float, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = mixing_runner()
    check, begun = check_of(captured), cast(BegunDecodes, None)
    errors = [[(2.0, begun)], [(error, begun)], [(0.0, begun)], [(error, begun)], [(0.01, begun)]]
    monkeypatch.setattr(check, "_room_of_experts", lambda _: 0.4)
    monkeypatch.setattr(check, "_errors_of_decodes", lambda _, number: errors[number])
    assert (check._wrong_decode(cast(DecodeSteps, None)) is None) == is_right
    monkeypatch.setattr(check, "_error_of_prefill", lambda _, number: errors[number][0][0])
    assert (check._wrong_prefill(cast(PrefillSteps, None)) is None) == is_right


def test_what_rounding_takes_is_only_asked_for_where_the_middle_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    check, begun = check_of(mixing_runner()), cast(BegunDecodes, None)
    errors = [2.0, 0.05, 0.0, 0.05, 3.0]
    monkeypatch.setattr(check, "_room_of_experts", lambda _: pytest.fail("worked out for nothing"))
    monkeypatch.setattr(check, "_errors_of_decodes", lambda _, number: [(errors[number], begun)])
    monkeypatch.setattr(check, "_error_of_prefill", lambda _, number: errors[number])
    monkeypatch.setattr(check, "_eager_error_of", lambda number: (errors[number], 0.1))
    assert check._wrong_decode(cast(DecodeSteps, None)) is None
    assert check._wrong_prefill(cast(PrefillSteps, None)) is None
    assert check._eager_error() == (0.05, 0.1)


@pytest.mark.parametrize("step", [FusedStep, MergedForward])
def test_a_captured_mixture_that_is_off_is_found_out(
    step: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute = step.__call__
    wrong = off(compute) if step is MergedForward else lambda step: -compute(step)
    monkeypatch.setattr(step, "__call__", wrong)
    captured = mixing_runner()
    assert captured.prefills is not None
    check = check_of(captured)
    assert check.allows_decodes(captured.decodes)
    assert check.allows_prefills(captured.prefills)
    left_out = "fused chain" if step is FusedStep else "merged launches"
    assert [left.kind for left in check.left_out] == [left_out]


def test_what_a_small_cache_has_no_room_for_is_not_tried() -> None:
    captured = tiny_captured_runner(num_blocks=1)  # 16 tokens, no more than the first chunk of a prefill
    assert captured.prefills is not None
    assert check_of(captured).allows_prefills(captured.prefills)
    assert captured.prefills.num_replays == 0


def tiny_captured_runner(num_blocks: int) -> CapturedRunner:
    return make_runner(tiny_model("llama", "cpu", torch.float32), num_blocks, captured=True, max_num_tokens=64)


def mixing_runner() -> CapturedRunner:
    model = tiny_model("many_experts", "cpu", torch.bfloat16)
    return make_runner(model, num_blocks=12, captured=True, max_num_tokens=64)


def check_of(runner: CapturedRunner) -> SelfCheck:
    return SelfCheck("tiny", eager_of(runner), 304)


def test_what_was_wrong_is_remembered_until_a_start_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    model = str(tmp_path)
    assert last_check(model, "GPU", "float16") is None
    compute = LibraryStep.__call__
    monkeypatch.setattr(LibraryStep, "__call__", lambda step: -compute(step))
    captured = tiny_captured_runner(num_blocks=4)
    check = check_of(captured)
    assert check.allows_decodes(captured.decodes)
    keep_check(model, "GPU", "float16", check.left_out)
    found = last_check(f"{tmp_path}/.", "GPU", "float16")
    assert found is not None
    assert found.left_out == [LeftOut("Steps", "library products", "2")]
    assert last_check(model, "GPU", "bfloat16") is last_check(model, "another", "float16") is None
    assert last_check(model, "GPU", "float16", batch_invariant=True) is None
    keep_check(model, "GPU", "float16", [])
    assert last_check(model, "GPU", "float16") is None


_ONE = b'[{"what": "Steps", "kind": "fused chain", "off": "2"}]'


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"\xff", b'{"when": "now", "left_out": %s}' % _ONE, b'{"when": 1, "left_out": []}',
        b'{"when": 1e300, "left_out": %s}' % _ONE, b'{"when": -1, "left_out": %s}' % _ONE,
    ],
)  # fmt: skip
def test_what_is_remembered_and_cannot_be_read_is_nothing(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path))
    keep_check("m", "GPU", "float16", [LeftOut("Prefills", "", "nan")])
    [file] = (tmp_path / "checks").iterdir()
    file.write_bytes(content)
    assert last_check("m", "GPU", "float16") is None


def test_what_cannot_be_remembered_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAGEDCHAT_CACHE_DIR", str(tmp_path / "file"))
    keep_check("m", "GPU", "float16", [LeftOut("Prefills", "", "nan")])
    keep_check("m", "GPU", "float16", [])
    assert last_check("m", "GPU", "float16") is None


@pytest.mark.gpu
def test_on_a_gpu_answers_are_right_though_a_step_is_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Steps of one launch with logits of the other sign: of one draw among one token the least likely came out."""
    compute = PersistentStep.__call__
    monkeypatch.setattr(PersistentStep, "__call__", lambda step: compute(step).neg_())
    write_checkpoint(tmp_path, OPT_125M, torch.float16, torch.device("cpu"))
    llm = LLM(str(tmp_path), device="cuda", dtype="float16", num_blocks=64, skip_tokenizer_init=True)
    assert "are left out, since one is off by 2" in caplog.text
    assert any("are left out, since one is off by 2" in notice for notice in llm.notices)
    assert cli.main(["doctor", "--model", str(tmp_path)]) == 0
    assert "  Steps as one launch in clusters are left out, since one is off by 2" in capsys.readouterr().out
    replies = [
        llm.generate({"prompt_token_ids": [5, 6, 7]}, params, use_tqdm=False)[0].outputs[0].token_ids
        for params in (
            SamplingParams(temperature=0, max_tokens=3, ignore_eos=True),
            SamplingParams(top_k=1, seed=1, max_tokens=3, ignore_eos=True),
        )
    ]
    assert replies[0] == replies[1]


# --- the same in any company ----------------------------------------------------------------------------


@pytest.fixture
def exact_runner(tmp_path: Path) -> TorchModelRunner:
    folder = make_checkpoint(tmp_path, "llama")
    model = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, device="cpu", dtype="float16", batch_invariant=True
    )
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=40, block_size=4))).runner
    assert isinstance(loaded, TorchModelRunner)
    return loaded


@pytest.mark.parametrize("num_blocks", [1, 3, 40])
def test_a_model_that_is_the_same_in_company_passes(exact_runner: TorchModelRunner, num_blocks: int) -> None:
    exact_runner.backend.num_blocks = num_blocks
    check = SelfCheck("tiny", exact_runner, VOCAB_SIZE, exact=True)
    check.refuse_if_wrong()
    assert check.left_out == []


def test_a_captured_step_of_other_bits_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = LibraryStep.__call__
    monkeypatch.setattr(LibraryStep, "__call__", lambda step: compute(step) * 1.001)
    captured = tiny_captured_runner(num_blocks=4)
    lenient, exact = check_of(captured), SelfCheck("tiny", eager_of(captured), 304, exact=True)
    assert lenient.allows_decodes(captured.decodes)
    assert lenient.left_out == []
    exact.allows_decodes(captured.decodes)
    assert exact.left_out[0] == LeftOut("Steps", "library products", "some bits")


@pytest.mark.parametrize("what", ["products", "attention"])
def test_a_model_that_is_not_is_refused(
    exact_runner: TorchModelRunner, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "products":  # a last bit that the number of rows changes

        class Varying(InvariantArithmetic):
            def multiply(self, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
                return super().multiply(rows, weight, bias) * (1.0 if len(rows) > 2 else 1.001)

        use_arithmetic(exact_runner.model, Varying())
    else:
        attend = exact_runner.backend.attend

        def varying(layer_idx: int, query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            return attend(layer_idx, query, *args, **kwargs) * (1.0 if len(query) > 2 else 1.001)

        monkeypatch.setattr(exact_runner.backend, "attend", varying)
    with pytest.raises(ModelError, match="tiny gives other numbers in company than alone"):
        SelfCheck("tiny", exact_runner, VOCAB_SIZE, exact=True).refuse_if_wrong()
    SelfCheck("tiny", exact_runner, VOCAB_SIZE).refuse_if_wrong()
