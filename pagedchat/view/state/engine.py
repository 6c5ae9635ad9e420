"""The folded state of one engine: its cache, its last reports, what they tell in words and as columns. Pure."""

from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from itertools import islice
from types import MappingProxyType

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import EngineReady, PoolCounts, StepReport
from pagedchat.view.groups.story import GroupStories
from pagedchat.view.sentences.event_lines import EventLine
from pagedchat.view.sentences.narrator import Narrator
from pagedchat.view.sentences.words import short_label
from pagedchat.view.sharing.regrouping import Regrouping
from pagedchat.view.speculation.story import DraftStories
from pagedchat.view.state.copied_blocks import CopiedBlocks
from pagedchat.view.state.copying import mirror_copy
from pagedchat.view.state.fold import Fold
from pagedchat.view.state.rates import RateWindow
from pagedchat.view.timeline.columns import StepColumns

MAX_REPORTS = 4096
MAX_ENTRIES = 200_000
"""Batch entries in all reports kept: with large batches fewer reports are."""
LABEL_IN_LINES = 12
"""Cells of a label in an event line."""

_NOTHING: Mapping[int, bytes] = MappingProxyType({})


class EngineState:
    """One engine's reports, folded up to some moment.

    Args:
        info: what the engine said when it was ready.
        name: sequence id -> what it is called.
        mirror: the cache when the first report is folded; empty by default.
        token_texts: token id -> its text in UTF-8, as far as it has been told.
    """

    def __init__(
        self,
        info: EngineReady,
        name: Callable[[int], str],
        mirror: CacheMirror | None = None,
        token_texts: Mapping[int, bytes] = _NOTHING,
    ) -> None:
        self.info = info
        self.name = name
        self.mirror = mirror or CacheMirror(info.num_blocks, info.block_size, info.num_host_blocks)
        self.paused = False
        self.labels: Mapping[int, str] = {}
        """What sequences were called then, where this is the past."""
        self.history: deque[StepReport] = deque()
        """The last reports, oldest first."""
        self._num_entries = 0
        self.columns = StepColumns(self.mirror)
        """The last steps as columns of the batching timeline."""
        self._copied = CopiedBlocks(self.mirror)
        self._rates = RateWindow()
        self._regrouping = Regrouping(self.mirror)
        self.groups = GroupStories(self.mirror)
        """Beams of searches, and several answers to one prompt."""
        self.drafts = DraftStories(self.mirror)
        """Tokens that were guessed, and verified."""
        self.narrator = Narrator(self.mirror, lambda seq_id: short_label(name(seq_id), LABEL_IN_LINES), token_texts)
        """Tells what happened, line by line."""
        self._fold = self._begin_fold()

    # --- folding ------------------------------------------------------------------------------------

    def set_paused(self, paused: bool) -> None:
        """The scheduler was paused, or runs again."""
        if paused and not self.paused:
            self.columns.pause()
        self.paused = paused

    def fold(self, report: StepReport) -> None:
        """Take in the next report."""
        self._fold(report)
        self.history.append(report)
        self._num_entries += len(report.batch)
        while len(self.history) > MAX_REPORTS or self._num_entries > MAX_ENTRIES:
            self._num_entries -= len(self.history.popleft().batch)

    def _begin_fold(self) -> Fold:
        listeners = (  # groups first: who tells of a fork has to know that it is a beam
            self.groups, self.narrator, self.columns, self._rates, self._copied, self._regrouping, self.drafts,
        )  # fmt: skip
        return Fold(self.mirror, listeners)

    def copy(self) -> "EngineState":
        """The same state, to be folded on by itself."""
        twin = copy(self)
        twin.mirror = mirror = mirror_copy(self.mirror)
        twin.history = self.history.copy()
        twin.columns, twin._copied = self.columns.copy(mirror), self._copied.copy(mirror)
        twin._rates, twin._regrouping = self._rates.copy(), self._regrouping.copy(mirror)
        twin.groups, twin.drafts = self.groups.copy(mirror), self.drafts.copy(mirror)
        twin.narrator = self.narrator.copy(mirror)
        twin._fold = twin._begin_fold()
        return twin

    # --- reading ------------------------------------------------------------------------------------

    @property
    def lines(self) -> deque[EventLine]:
        """The last event lines, oldest first."""
        return self.narrator.lines

    @property
    def num_lines(self) -> int:
        """Lines told so far, those forgotten included."""
        return self.narrator.num_lines

    @property
    def pool(self) -> PoolCounts:
        """Blocks by state after the last report; all of them free before the first."""
        info, last = self.info, self.mirror.last
        if last is not None:
            return last.pool
        return PoolCounts(info.num_blocks, info.num_blocks, 0, 0, 0, 0, info.num_host_blocks, 0)

    @property
    def step(self) -> int:
        """Number of the last step that ran; 0 before the first."""
        return self.history[-1].step if self.history else 0

    @property
    def busy(self) -> bool:
        """Whether any sequence is running, or queued to."""
        if not self.history:
            return False
        queues = self.history[-1].queues
        return bool(queues.waiting or queues.running or queues.swapped)

    @property
    def running(self) -> bool:
        """Whether any sequence takes part in steps; all that are queued may have to wait."""
        return bool(self.history and self.history[-1].queues.running)

    @property
    def last_batch(self) -> int:
        """Sequences in the last step's batch; 0 when none can run."""
        if not self.running:
            return 0
        return next((len(report.batch) for report in reversed(self.history) if report.batch), 0)

    @property
    def tokens_per_second(self) -> float:
        """Tokens generated per second over the last two seconds of report time; 0 when none can run, or paused."""
        return self._rates.rate() if self.running and not self.paused else 0.0

    def sequence_rate(self, seq_id: int) -> float:
        """The same of one sequence; 0 unless it is running."""
        sequence = self.mirror.sequences.get(seq_id)
        if sequence is None or sequence.status != "running" or self.paused:
            return 0.0
        return self._rates.sequence_rate(seq_id)

    def fresh_copies(self) -> set[int]:
        """Blocks in use into which copy-on-write has copied just now."""
        return self._copied.fresh()

    def num_copied(self, seq_id: int) -> int:
        """Blocks that copy-on-write has copied for a sequence."""
        return self._copied.count(seq_id)

    @property
    def regrouped_at(self) -> int:
        """Number of the last report after which blocks may be shared in another way; 0 before the first."""
        return self._regrouping.last

    def recent_events(self, count: int) -> list[EventLine]:
        """The last `count` event lines, oldest first."""
        return list(islice(self.lines, max(0, len(self.lines) - count), None))

    def blocks_of(self, seq_id: int) -> tuple[int, int]:
        """How many device blocks a sequence has for itself, and how many it shares."""
        table = self._table(seq_id)
        counts = self.mirror.ref_counts
        shared = sum(1 for block_id in table if counts[block_id] > 1)
        return len(table) - shared, shared

    def shared_with(self, seq_id: int) -> dict[int, int]:
        """Other sequences that hold blocks of this one -> how many of them."""
        found: dict[int, int] = {}
        for block_id in self._table(seq_id):
            for holder in self.mirror.holders[block_id]:
                if holder != seq_id:
                    found[holder] = found.get(holder, 0) + 1
        return found

    def _table(self, seq_id: int) -> list[int]:
        sequence = self.mirror.sequences.get(seq_id)
        return sequence.block_table if sequence else []


_NOTHING_READY = EngineReady(
    model="", architecture="", num_parameters=0, dtype="", device="", num_layers=0, num_kv_heads=0, head_dim=0,
    vocab_size=0, max_model_len=0, block_size=1, num_blocks=0, num_host_blocks=0, block_bytes=0,
    chat_template="plain", sampling_defaults={}, load_seconds=0.0,
)  # fmt: skip
NO_ENGINE = EngineState(_NOTHING_READY, "seq {}".format)
"""Stands where there is no engine: nothing has happened, and nothing is ever folded into it."""
