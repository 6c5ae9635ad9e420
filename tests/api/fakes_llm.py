"""An `LLM` on a model runner without a model, for tests of what is around the engine."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tokenizers import Tokenizer

from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import Grammars, ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import TokenLogprobs
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.events import EngineReady
from pagedchat.runtime.loading.loaded import nothing_to_release, nothing_wanted
from tests.fakes import CHAT_TEMPLATE, FakeModelRunner, byte_tokenizer

VOCAB_SIZE = 260


A = byte_tokenizer().encode("a").ids[0]


class LikelyRunner(FakeModelRunner):
    """Says of every sequence which letters are likely, by how long it is; by its seed it draws one of them."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        output = super().execute(batch)
        output.logprobs = [[] for _ in batch.scheduled]
        for i, part in enumerate(batch.scheduled):
            seq = part.sequence
            count = seq.sampling_params.logprobs
            if not part.samples:
                continue
            letter = 0 if seq.sampling_params.greedy else (seq.seed + len(seq)) % 26
            output.token_ids[i] = [A + letter]
            if count is not None:
                ids = [A + (len(seq) + rank) % 26 for rank in range(count)]
                logprobs = [-1.0 - rank / 10 for rank in range(count)]
                output.logprobs[i] = [TokenLogprobs([A + letter, *ids], [-float(letter), *logprobs], 1)]
        return output


@dataclass
class FakeLoadedModel:
    """What `load_model` returns, with a byte tokenizer and a model that recites."""

    runner: FakeModelRunner = field(default_factory=FakeModelRunner)
    limits: EngineLimits = field(
        default_factory=lambda: EngineLimits(num_blocks=64, block_size=4, model_len=128, vocab_size=VOCAB_SIZE)
    )
    tokenizer: Tokenizer | None = field(default_factory=byte_tokenizer)
    chat_template: str | None = CHAT_TEMPLATE
    special_tokens: dict[str, str] = field(default_factory=dict)
    sampling_defaults: SamplingParams = field(default_factory=lambda: SamplingParams(temperature=0, max_tokens=5))
    notices: tuple[str, ...] = ()
    grammars: Grammars | None = None
    draft: DraftRunner | None = None

    prepare_wanted: Callable[[], None] = nothing_wanted
    release: Callable[[Callable[[], None]], None] = nothing_to_release

    def __post_init__(self) -> None:
        self.runner.block_size = self.limits.block_size

    @property
    def info(self) -> EngineReady:
        return EngineReady(
            model="fake",
            architecture="FakeForCausalLM",
            num_parameters=0,
            dtype="float32",
            device="cpu",
            num_layers=1,
            num_kv_heads=1,
            head_dim=1,
            vocab_size=VOCAB_SIZE,
            max_model_len=self.limits.model_len,
            block_size=self.limits.block_size,
            num_blocks=self.limits.num_blocks,
            num_host_blocks=self.limits.num_host_blocks,
            block_bytes=8 * self.limits.block_size,
            chat_template="model" if self.chat_template else "plain",
            sampling_defaults={},
            load_seconds=0.0,
        )


def use_fake_model(monkeypatch: pytest.MonkeyPatch, loaded: FakeLoadedModel | None = None) -> list[EngineConfig]:
    """Every `LLM` and `LLMEngine` from now on gets `loaded`; returns the configs that were asked for."""
    from pagedchat.api import engine

    configs: list[EngineConfig] = []

    def load_model(config: EngineConfig, _progress: object, **_options: object) -> FakeLoadedModel:
        configs.append(config)
        return loaded or FakeLoadedModel()

    monkeypatch.setattr(engine, "load_model", load_model)
    return configs
