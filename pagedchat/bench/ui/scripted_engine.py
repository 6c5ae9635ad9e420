"""A loader for the engine process that loads no model: the real engine recites a text, at a pace that is set.

Scheduler, blocks, tokens to text, reports and wire are the ones that users run; only the forward pass is a sleep,
as waiting for a GPU is.
"""

import time
from collections.abc import Callable

from tokenizers import Tokenizer

from pagedchat import bundled
from pagedchat.bench.ui.markdown_sample import SAMPLE
from pagedchat.bench.ui.script import StepCounter, inherited_script
from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.events import EngineReady, LoadProgress
from pagedchat.runtime.loading.loaded import LoadedModel

LOADER = "pagedchat.bench.ui.scripted_engine:load"
MODEL_LEN = 1_000_000
_TEXT = (
    " Once there was a fisher who lived by the sea. Every morning she rowed out before the sun was up, and every"
    " evening she came home with the tide. One day the net was heavy, and there was a small brass lamp in it."
    "\n\nShe put it on the shelf beside the window, where it caught the light."
)


class RecitingRunner:
    """Sleeps for each step and goes on with the text where the sequence stands."""

    def __init__(self, reply: list[int], step_seconds: float, counter: StepCounter) -> None:
        self._reply = reply
        self._step_seconds = step_seconds
        self._counter = counter

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """One step."""
        time.sleep(self._step_seconds)
        self._counter.add()
        return ModelRunnerOutput(
            [self._sample(item) for item in batch.scheduled], forward_seconds=self._step_seconds
        )

    def check(self) -> None:
        """It never breaks."""

    def _sample(self, item: ScheduledSequence) -> list[int]:
        return [self._reply[(item.start + item.num_tokens) % len(self._reply)]] if item.samples else []


def load(config: EngineConfig, progress: Callable[[LoadProgress], None]) -> LoadedModel:
    """Called by the engine process in place of what reads a checkpoint."""
    script = inherited_script()
    tokenizer = Tokenizer.from_file(str(bundled.folder() / "tokenizer.json"))
    text = SAMPLE if script.markdown else _TEXT
    reply = tokenizer.encode(text, add_special_tokens=False).ids
    return LoadedModel(
        runner=RecitingRunner(reply, script.step_seconds, StepCounter(script.step_count)),
        limits=EngineLimits(num_blocks=script.num_blocks, model_len=MODEL_LEN),
        info=ready_info(script.num_blocks),
        tokenizer=tokenizer,
        chat_template=None,
        special_tokens={},
        sampling_defaults=SamplingParams(),
    )


def ready_info(num_blocks: int) -> EngineReady:
    """What an engine with opt-125m's cache says when it is ready."""
    return EngineReady(
        model="recited",
        architecture="Recited",
        num_parameters=0,
        dtype="float16",
        device="cpu",
        num_layers=12,
        num_kv_heads=12,
        head_dim=64,
        vocab_size=50_272,
        max_model_len=MODEL_LEN,
        block_size=16,
        num_blocks=num_blocks,
        num_host_blocks=0,
        block_bytes=589_824,
        chat_template="plain",
        sampling_defaults={},
        load_seconds=0.0,
    )
