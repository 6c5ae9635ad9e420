"""Models that transformers' modules run, as captured steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    NemotronConfig,
    PreTrainedConfig,
)

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import ModelError
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.attention.transformers_attention import ATTENTION_NAME, register
from pagedchat.runtime.graphs.capture import GraphRecorder
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.steps import Step
from pagedchat.runtime.graphs.foreign_model import ForeignModel
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.first_graphs import FirstGraphs
from pagedchat.runtime.loading.self_check import SelfCheck
from pagedchat.runtime.step.model_runner import TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes
from tests.helpers_models import reference_replies
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import BLOCK_SIZE, MAX_NUM_SEQS, make_engine

VOCAB_SIZE, MODEL_LEN = 96, 256
SIZES = StepSizes(128, MAX_NUM_SEQS, MODEL_LEN)
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 256, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": MODEL_LEN,
}  # fmt: skip
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**_SHAPE),
    "nemotron": NemotronConfig(**_SHAPE),  # hands nothing on to its attention
    "gpt_neox": GPTNeoXConfig(
        vocab_size=VOCAB_SIZE, hidden_size=256, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=MODEL_LEN,
    ),
}  # fmt: skip
MIXTURE = GptOssConfig(**_SHAPE, num_local_experts=4, num_experts_per_tok=2, sliding_window=20)
KINDS = (
    SamplingParams(temperature=0, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=0, repetition_penalty=1.1, max_tokens=40, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=3, max_tokens=35, ignore_eos=True),
)


def transformers_model(config: PreTrainedConfig, device: str) -> torch.nn.Module:
    register()
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME, dtype=torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() > 1 else 1.0, std=0.1)
    return model.to(device).eval().requires_grad_(False)


def eager_runner(config: PreTrainedConfig, device: str, num_blocks: int = 80) -> TorchModelRunner:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    shape = CacheShape(2, BLOCK_SIZE, 4, heads, 64, torch.float32)
    place = torch.device(device, 0) if device == "cuda" else torch.device(device)
    return TorchModelRunner(transformers_model(config, device), CudaAttention(shape, num_blocks, 0, place), place)


def replies(core: EngineCore) -> list[list[int]]:
    """Of chats that join one after another."""
    ids = []
    for number, params in enumerate(KINDS * 2):
        ids.append(core.open())
        core.extend(ids[-1], [(7 * i + 31 * number) % VOCAB_SIZE for i in range(9 + 11 * number)], params)
        for _ in range(4):
            core.step()
    while core.has_work:
        core.step()
    return [core.sequences[seq_id].output_token_ids for seq_id in ids]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CONFIGS)
def test_captured_steps_give_the_tokens_of_eager_ones(name: str, device: str) -> None:
    config = CONFIGS[name]
    expected = replies(make_engine(eager_runner(config, device)))  # type: ignore[arg-type]
    eager = eager_runner(config, device)
    first = FirstGraphs(eager, SIZES)
    captured = first.capture(SelfCheck(name, eager, VOCAB_SIZE))
    assert captured is not None
    assert captured.prefills is not None
    assert first.refusals == []
    for num_seqs in (2, 4, 8):
        assert captured.decodes.prepare(num_seqs, MODEL_LEN)
        assert captured.prefills.prepare(64, 1, MODEL_LEN)
    assert replies(make_engine(captured)) == expected
    assert captured.prefills.num_replays > 2
    assert captured.decodes.num_ahead > 30
    assert set(captured.decodes.store._names.values()) == {"modules"}


@pytest.mark.gpu
def test_what_waits_for_the_device_is_not_captured_and_runs_all_the_same() -> None:
    expected = replies(make_engine(eager_runner(MIXTURE, "cuda")))  # type: ignore[arg-type]
    eager = eager_runner(MIXTURE, "cuda")
    first = FirstGraphs(eager, SIZES)
    captured = first.capture(SelfCheck("mixture", eager, VOCAB_SIZE))
    if captured is None:  # it depends on how transformers runs experts
        assert first.refusals[0].startswith("Decodes of this model are not captured in CUDA graphs")
    assert replies(make_engine(eager if captured is None else captured)) == expected  # type: ignore[arg-type]


def test_what_cannot_be_captured_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_recorder: GraphRecorder, _step: Step) -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nSearch for ...")

    eager = eager_runner(CONFIGS["llama"], "cpu")
    monkeypatch.setattr(GraphRecorder, "capture", refuse)
    first = FirstGraphs(eager, SIZES)
    assert first.capture(SelfCheck("llama", eager, VOCAB_SIZE)) is None
    assert first.refusals == [
        "Decodes of this model are not captured in CUDA graphs, and take longer: "
        "CUDA error: operation not permitted when stream is capturing."
    ]


def test_prompts_alone_may_be_what_cannot_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = eager_runner(CONFIGS["llama"], "cpu")
    first = FirstGraphs(eager, SIZES)
    monkeypatch.setattr(first._prefills.store, "_make", lambda _key: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # no error that a model may have
        first.capture(SelfCheck("llama", eager, VOCAB_SIZE))

    def refuse(_key: object) -> Step:
        raise ModelError("TypeError: no such argument")

    first = FirstGraphs(eager, SIZES)
    monkeypatch.setattr(first._prefills.store, "_make", refuse)
    captured = first.capture(SelfCheck("llama", eager, VOCAB_SIZE))
    assert captured is not None
    assert captured.prefills is None
    assert first.refusals == [
        "Prompts of this model are not captured in CUDA graphs, and take longer: TypeError: no such argument."
    ]
    assert replies(make_engine(captured)) == replies(make_engine(eager))  # type: ignore[arg-type]


class Strange(torch.nn.Module):
    """Takes other arguments than all others, or makes another number of logits."""

    def __init__(self, head: object, *, fails: bool = False) -> None:
        super().__init__()
        self._head, self._fails = head, fails

    def get_output_embeddings(self) -> object:
        return self._head

    def forward(self, **arguments: Any) -> Any:
        if self._fails:
            raise TypeError("unexpected keyword argument 'use_cache'\nand more")
        return SimpleNamespace(logits=torch.zeros(1, arguments["input_ids"].shape[1], 7))


def test_strangers_that_do_not_fit_are_told_of() -> None:
    ids = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ModelError, match="does not say which of its modules makes logits"):
        ForeignModel(Strange(None))
    head = torch.nn.Linear(4, 9)
    with pytest.raises(ModelError, match=r"^TypeError: unexpected keyword argument 'use_cache'$"):
        ForeignModel(Strange(head, fails=True))(ids, ids, None, ids)
    with pytest.raises(ModelError, match="makes 7 logits of 9 rows"):
        ForeignModel(Strange(head))(ids, ids, None, ids)
    assert ForeignModel(Strange(torch.nn.Linear(4, 7)))(ids, ids, None, ids[:1]).shape == (1, 7)


def test_a_step_of_more_room_serves_a_stranger_too() -> None:
    eager = eager_runner(CONFIGS["llama"], "cpu")
    captured = FirstGraphs(eager, SIZES).capture(SelfCheck("llama", eager, VOCAB_SIZE))
    assert captured is not None
    assert captured.decodes.store.capture((Bucket(4, MODEL_LEN), "drawn"))
    assert captured.decodes.store.at_hand(Bucket(2, MODEL_LEN), "greedy")[0] == Bucket(4, MODEL_LEN)  # type: ignore[index]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CONFIGS)
def test_loading_captures_a_model_of_transformers(name: str, tmp_path: Path) -> None:
    transformers_model(CONFIGS[name], "cpu").save_pretrained(tmp_path)
    model = ModelConfig(
        model=str(tmp_path), device="cuda", dtype="float32", skip_tokenizer_init=True,
        implementation="transformers",
    )  # fmt: skip
    loaded = load_model(EngineConfig(model=model, cache=CacheConfig(num_blocks=100)))
    assert isinstance(loaded.runner, CapturedRunner)
    assert loaded.notices == ()
    prompts = [[5, 6, 7], list(range(10, 40))]
    core = EngineCore(loaded.limits, loaded.runner)
    ids = [core.open() for _ in prompts]
    for seq_id, prompt in zip(ids, prompts, strict=True):
        core.extend(seq_id, prompt, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    while core.has_work:
        core.step()
        loaded.prepare_wanted()
    assert loaded.runner.decodes.num_replays > 0
    assert [core.sequences[seq_id].output_token_ids for seq_id in ids] == reference_replies(tmp_path, prompts, 8)
