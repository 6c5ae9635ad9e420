"""Eight chats with long contexts in a large pool, stepped by hand: what the inspector's frames are measured over.

The reports are those of the real scheduler and block manager; only the model is missing.
"""

from pagedchat.bench.step_host import InstantRunner
from pagedchat.bench.ui.scripted_engine import MODEL_LEN, ready_info
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.events import Steps
from pagedchat.view.engine_view import EngineView

_SHARE_IN_USE = 0.5
_SHARE_CACHED = 0.25


class LongChats:
    """An engine whose pool is half in use, a quarter cached, and a view that hears of every step.

    The second chat is a fork of the first, so some blocks are shared.
    """

    def __init__(self, view: EngineView, num_blocks: int, num_chats: int, steps_per_second: int) -> None:
        self._view = view
        self._seconds = 0.0
        self._step_seconds = 1 / steps_per_second
        limits = EngineLimits(num_blocks=num_blocks, model_len=MODEL_LEN, max_num_batched_tokens=num_blocks * 16)
        self._core = EngineCore(limits, InstantRunner(), clock=lambda: self._seconds)
        view.labels = {number: f"{number} chat" for number in range(1, num_chats + 1)}
        view.apply(ready_info(num_blocks))
        self._fill(num_blocks, num_chats)

    def step(self, count: int) -> None:
        """So many steps, told at once."""
        reports = []
        for _ in range(count):
            self._seconds += self._step_seconds
            reports.append(self._core.step())
        self._view.apply(Steps(reports))

    def _fill(self, num_blocks: int, num_chats: int) -> None:
        gone = num_chats + 1
        self._ask(gone, int(num_blocks * _SHARE_CACHED) * 16)
        self.step(2)
        self._core.stop(gone)
        self._core.close(gone)
        each = max(1, int(num_blocks * _SHARE_IN_USE) // num_chats) * 16
        for number in range(1, num_chats + 1):
            if number == 2:
                self._core.fork(1, 2)
            else:
                self._ask(number, each)
            self.step(1)

    def _ask(self, seq_id: int, num_tokens: int) -> None:
        """A prompt of tokens that no other has."""
        self._core.open(seq_id)
        tokens = [seq_id * 1_000_000 + i for i in range(num_tokens)]
        self._core.extend(seq_id, tokens, SamplingParams(max_tokens=None, ignore_eos=True))
