"""StepReports without a model: a scripted runner under the real `EngineCore`, with a clock that tests move.

The reports are therefore those of the real scheduler and block manager, and the same on every run.
"""

import random
from collections.abc import Iterator

from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence, TokenLogprobs
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.events import EngineReady, StepReport, Steps
from pagedchat.view.engine_view import EngineView

STEP_SECONDS = 0.05


class ScriptedRunner:
    """Samples token 7 for everybody; a step takes 3.1 ms in the model and 0.4 ms in the sampler."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        tokens = [[7] if item.samples else [] for item in batch.scheduled]
        copy = 0.0002 * len(batch.block_ops)
        logprobs = [_likely(item.sequence) if item.samples else [] for item in batch.scheduled]
        return ModelRunnerOutput(tokens, copy, forward_seconds=0.0031, sample_seconds=0.0004, logprobs=logprobs)

    def check(self) -> None:
        """It never breaks."""


class SmallerRunner:
    """Drafts for the other, and is right two times of three."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        return ModelRunnerOutput([[7 if item.start % 3 else 3] if item.samples else [] for item in batch.scheduled])

    def check(self) -> None:
        """It never breaks."""


def _likely(sequence: Sequence) -> list[TokenLogprobs]:
    """Of beams four tokens, which one most depends on all before."""
    if sequence.sampling_params.logprobs is None:
        return []
    turn = sum(sequence.token_ids) + len(sequence)
    tokens = [(0, 1, 2, 7)[(turn + place) % 4] for place in range(4)]
    logprobs = [-0.5 - 0.3 * place * (1 + turn % 3) for place in range(4)]
    return [TokenLogprobs([tokens[0], *tokens], [logprobs[0], *logprobs], 1)]


class ScriptedEngine:
    """The engine core with everything told to an `EngineView`, one step at a time."""

    def __init__(self, view: EngineView | None = None, draft: DraftRunner | None = None, **limits: object) -> None:
        self.now = 0.0
        self.view = view or EngineView(lambda: self.now)
        self.core = EngineCore(EngineLimits(**limits), ScriptedRunner(), clock=lambda: self.now, draft=draft)
        self.view.apply(ready(self.core.limits))
        self.reports: list[StepReport] = []

    def ask(self, seq_id: int, prompt: int | list[int], max_tokens: int = 1000) -> None:
        """Extend (and open, if it is new) with a prompt of `prompt` tokens of its own, or these."""
        if seq_id not in self.core.sequences:
            self.core.open(seq_id)
        tokens = [seq_id * 1000 + i for i in range(prompt)] if isinstance(prompt, int) else prompt
        self.core.extend(seq_id, tokens, SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True))

    def run(self, steps: int = 1) -> StepReport:
        """That many steps, `STEP_SECONDS` apart; the last one's report."""
        for _ in range(steps):
            self.now += STEP_SECONDS
            self.tell(self.core.step())
        return self.reports[-1]

    def flush(self) -> None:
        """Tell what verbs did since the last step."""
        report = self.core.flush()
        assert report is not None
        self.tell(report)

    def tell(self, report: StepReport) -> None:
        self.reports.append(report)
        self.view.apply(Steps([report]))


def ready(limits: EngineLimits) -> EngineReady:
    """A tiny model's `EngineReady` for these limits."""
    return EngineReady(
        model="tiny/opt",
        architecture="OPTForCausalLM",
        num_parameters=1000,
        dtype="float32",
        device="cpu",
        num_layers=2,
        num_kv_heads=2,
        head_dim=8,
        vocab_size=100,
        max_model_len=limits.model_len,
        block_size=limits.block_size,
        num_blocks=limits.num_blocks,
        num_host_blocks=limits.num_host_blocks,
        block_bytes=589_824,
        chat_template="plain",
        sampling_defaults={},
        load_seconds=1.5,
    )


def story(num_blocks: int = 256) -> ScriptedEngine:
    """Two chats, a fork, a copy-on-write: what the inspector's pictures show."""
    engine = ScriptedEngine(num_blocks=num_blocks, num_host_blocks=16, max_num_batched_tokens=128)
    engine.view.labels = {1: "1 tale", 2: "2 tale»a", 3: "3 code", 4: "4 notes"}
    engine.ask(1, 370)
    engine.run(12)
    engine.ask(3, 96, max_tokens=8)
    engine.run(6)
    engine.core.fork(1, 2)
    engine.ask(4, 90, max_tokens=20)
    engine.run(12)
    return engine


def pressed(mode: str = "swap") -> ScriptedEngine:
    """A pool of 12 blocks of 4 under three chats: preemption, and a fork that survives it."""
    engine = ScriptedEngine(
        num_blocks=12,
        num_host_blocks=16,
        block_size=4,
        max_num_batched_tokens=8,
        preemption_mode=mode,
    )
    engine.view.labels = {1: "1 tale", 2: "2 code", 3: "3 tale»"}
    engine.ask(1, 9, max_tokens=24)
    engine.run(4)
    engine.ask(2, 10, max_tokens=20)
    engine.run(4)
    engine.core.fork(1, 3)
    engine.run(8)
    return engine


def random_workload(engine: ScriptedEngine, rng: random.Random, num_moves: int) -> Iterator[None]:
    """Verbs and steps as they come, each told at once; yields after every one."""
    core = engine.core
    for _ in range(num_moves):
        parked = [seq.seq_id for seq in core.sequences.values() if seq.status == "parked" and len(seq) < 30]
        move = rng.choice(["open", "extend", "fork", "rewind", "close", "step", "step", "step"])
        if move == "open" and len(core.sequences) < 6:
            core.open()
        elif move == "extend" and parked:
            engine.ask(
                rng.choice(parked), [rng.randint(0, 3) for _ in range(rng.randint(1, 12))], rng.randint(1, 9)
            )
        elif move == "fork" and core.sequences and len(core.sequences) < 6:
            core.fork(rng.choice(list(core.sequences)))
        elif move == "rewind" and core.sequences:
            seq = core.sequences[rng.choice(list(core.sequences))]
            core.rewind(seq.seq_id, rng.randint(0, len(seq)))
        elif move == "close" and core.sequences:
            core.close(rng.choice(list(core.sequences)))
        if move == "step" and core.has_work:
            engine.run()
        elif core.blocks.events:
            engine.flush()
        yield
