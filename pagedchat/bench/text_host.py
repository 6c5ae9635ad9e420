"""What text costs the engine process: the loop with replies, stop strings and frames, beside the engine alone.

The model answers at once, the screen reads nothing: what is timed is this process's own work, and nothing that
other programs do changes it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Tokenizer

from pagedchat.bench.random_checkpoint import byte_tokenizer
from pagedchat.chat.template import ChatTemplate
from pagedchat.chat.turns import Turn
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.events import EngineEvent, StepReport
from pagedchat.service.chats import Chats
from pagedchat.service.commands import Generate
from pagedchat.service.loop import EngineLoop, Inbox
from pagedchat.service.programs import Programs
from pagedchat.service.prompts import PrepareAtOnce, PromptWorkshop
from pagedchat.service.publisher import Publisher
from pagedchat.service.text_model import TextModel
from pagedchat.service.wire import FrameWriter

COUNTS = (1, 8, 64, 256)
STEP_SECONDS = 0.001
"""That a step is taken to last, on which it depends how often text is told."""
_WARM_UP = 20
_MAX_PROMPT = 200
_TEXT = "The sea is calm tonight.\nUsually the tide is full, the moon lies fair\non the straits; "


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHostResult:
    """Microseconds of one step in which every chat decodes a token, means over `num_steps`."""

    num_chats: int
    num_steps: int
    engine_us: float
    """The engine alone: schedule, update, report."""
    loop_us: float
    """The whole process: the same, text, stop strings, events, their bytes."""
    bytes_per_step: float
    """That go to the screen."""

    @property
    def text_us_per_token(self) -> float:
        """What the process does for a token beside the engine."""
        return (self.loop_us - self.engine_us) / self.num_chats


class _Reciting:
    """A model runner without a model: every chat recites the same text, each from a place of its own."""

    def __init__(self, token_ids: list[int]) -> None:
        self._tokens = [[token_id] for token_id in token_ids]

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """One token for each sequence that samples."""
        tokens, length = self._tokens, len(self._tokens)
        return ModelRunnerOutput(
            [
                tokens[(part.start + index) % length] if part.samples else []
                for index, part in enumerate(batch.scheduled)
            ]
        )

    def check(self) -> None:
        """It never breaks."""


class _TimedCore(EngineCore):
    """An engine that adds up what its steps take, by a clock."""

    def __init__(self, limits: EngineLimits, runner: ModelRunner, clock: Callable[[], float]) -> None:
        super().__init__(limits, runner)
        self._own_clock = clock
        self.seconds = 0.0

    def step(self) -> StepReport:
        """See `EngineCore`."""
        began = self._own_clock()
        report = super().step()
        self.seconds += self._own_clock() - began
        return report


def measure_text_host(
    num_chats: int, num_steps: int = 400, clock: Callable[[], float] = time.thread_time
) -> TextHostResult:
    """Decode so many chats together, each with the stop strings of a plain transcript.

    Args:
        num_chats: that decode together.
        num_steps: that count.
        clock: seconds; of this thread's own work by default.
    """
    sent: list[int] = []
    writer = FrameWriter()
    now = [0.0]

    def send(event: EngineEvent) -> None:
        sent.append(len(writer.frame(event)))

    tokenizer = byte_tokenizer()
    core = _TimedCore(_limits(num_chats, num_steps), _Reciting(tokenizer.encode(_TEXT).ids), clock)
    loop = _loop(core, tokenizer, num_chats, Publisher(send, lambda: now[0]))
    for _ in range(_WARM_UP):
        loop.step()
    sent.clear()
    core.seconds, began = 0.0, clock()
    for _ in range(num_steps):
        now[0] += STEP_SECONDS
        loop.step()
    seconds = clock() - began
    return TextHostResult(
        num_chats=num_chats,
        num_steps=num_steps,
        engine_us=round(1e6 * core.seconds / num_steps, 2),
        loop_us=round(1e6 * seconds / num_steps, 2),
        bytes_per_step=round(sum(sent) / num_steps, 1),
    )


def _limits(num_chats: int, num_steps: int) -> EngineLimits:
    """Room for all of them."""
    length = num_steps + _WARM_UP + _MAX_PROMPT
    return EngineLimits(
        num_blocks=num_chats * (length // 16 + 2),
        model_len=length,
        max_num_seqs=num_chats,
        max_num_batched_tokens=num_chats * _MAX_PROMPT,
        reserve_ahead=True,
    )


def _loop(core: EngineCore, tokenizer: Tokenizer, num_chats: int, publisher: Publisher) -> EngineLoop:
    """All chats are asked; none of them ends while it is timed."""
    text_model = TextModel(tokenizer, ChatTemplate(), SamplingParams())
    chats = Chats(core, publisher, text_model)
    programs = Programs(core, publisher, PrepareAtOnce(PromptWorkshop(text_model, None)), tokenizer)
    overrides = SamplingOverrides(max_tokens=core.limits.model_len, ignore_eos=True)
    for number in range(1, num_chats + 1):
        chats.handle(Generate(number, number, [Turn("user", f"Chat {number}")], overrides), time.monotonic())
    return EngineLoop(core, chats, programs, publisher, Inbox())
