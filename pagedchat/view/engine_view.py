"""What the screens know of the engine: its events folded into one object that every widget reads.

Plain Python: it knows neither Textual nor the engine process. `apply` is called with every event, in order; widgets
look at the result whenever they draw. What they see is the live engine, or, after `show_past`, the engine as it was
at some earlier moment; the live one goes on being followed all the while.
"""

import time
from collections import deque
from collections.abc import Callable

from pagedchat.chat.sanitize import one_line
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import (
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    IntegrityBroken,
    LoadProgress,
    RunState,
    ServerInfo,
    ServerModels,
    StepReport,
    Steps,
    TokenTexts,
)
from pagedchat.view.owners import unlabelled
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sentences.event_lines import EventLine
from pagedchat.view.sentences.left_behind import NOTHING, LeftBehind, carried_over
from pagedchat.view.state.engine import NO_ENGINE, EngineState
from pagedchat.view.state.server import ServerState
from pagedchat.view.timeline.columns import StepColumns

MAX_NOTICES = 20


class EngineView:
    """The engine as it is shown. Everything is empty or None until `EngineReady` and after `EngineDied`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_at = 0.0
        """When the last report was folded."""
        self.labels: dict[int, str] = {}
        """What the app calls each sequence (`"1 tale"`); outlives the engine."""
        self.called = ""
        """The model's name, where a second one stands beside it: panels then say which of them they show."""
        self.highlighted: frozenset[int] = frozenset()
        """Blocks that belong to what the user has selected somewhere; every panel shows them marked."""
        self.notices: deque[EngineNotice] = deque(maxlen=MAX_NOTICES)
        """What the engine said to everybody, oldest first; whoever shows it shows each once."""
        self.num_notices = 0
        """Said so far, those forgotten included."""
        self.left_behind = NOTHING
        """What the last engine had that the next one is to have, or cannot have."""
        self.travel: TimeTravel | None = None
        """What puts the past into this view, where anything is recorded."""
        self.reset()

    def reset(self) -> None:
        """Forget the engine: a new one starts with nothing. The labels stay."""
        self.choice: ServerModels | None = None
        """The models of a server of which one is to be chosen."""
        self.live: EngineState | None = None
        """The engine now."""
        self.server: ServerState | None = None
        """Who answers in place of an engine, where that is a server: then there is no `live`, whatever happens."""
        self.past: EngineState | None = None
        """The engine at the moment that the user went back to, while there is one."""
        self.loading: LoadProgress | None = None
        self.failure: EngineFailed | None = None
        self.broken: IntegrityBroken | None = None
        """Set for good once the engine's own check has failed."""
        self.limit: int | None = None
        """Blocks that the pool may use now; None is all of them."""
        self.pace = 0.0
        """Seconds that a step takes at least."""
        self.token_texts: dict[int, bytes] = {}
        """What each token that has occurred stands for, in UTF-8; some are only a part of a character."""
        self.highlighted = frozenset()

    # --- folding ------------------------------------------------------------------------------------

    def apply(self, event: EngineEvent) -> None:
        """Fold one event; of an engine, those that concern a single request change nothing here."""
        if self.server is not None:
            self.server.apply(event)
        match event:
            case Steps(reports=reports) if self.live is not None:
                for report in reports:
                    self.live.fold(report)
                self._heard_at = self._clock()
            case RunState() if self.live is not None:
                self.live.set_paused(event.paused)
                self.limit, self.pace = event.limit, event.pace
            case TokenTexts():
                self.token_texts.update(zip(event.token_ids, event.texts, strict=True))
            case LoadProgress() | ServerModels() | EngineReady() | EngineFailed():
                self._begin(event)
            case EngineNotice():
                self._notice(event)
            case IntegrityBroken():
                self.broken = event
            case EngineDied():
                if self.live is not None:
                    self.left_behind = LeftBehind(self.paused, self.pace, self.limit, len(self.live.mirror.pinned))
                self.reset()

    def _begin(self, event: LoadProgress | ServerModels | EngineReady | EngineFailed) -> None:
        """An engine, or a server, is on its way, or there, or cannot be had."""
        match event:
            case LoadProgress(stage=stage):
                self.loading = event
                self.failure = None if stage == "connect" else self.failure  # a server is asked again by itself
            case ServerModels():
                self.loading, self.failure, self.choice = None, None, event
            case EngineFailed():
                self.loading, self.failure, self.server = None, event, None
            case EngineReady(server=None):
                self.reset()
                self.live = EngineState(event, self.name, token_texts=self.token_texts)
                self._notice(*carried_over(self.left_behind))
                self.left_behind = NOTHING
            case EngineReady(server=ServerInfo() as server):
                self.reset()
                self.server = ServerState(event, server, self._clock)

    def starting_anew(self) -> None:
        """Another engine is on its way after one that could not start."""
        self.loading = self.failure = self.choice = None

    def _notice(self, *notices: EngineNotice) -> None:
        self.notices.extend(notices)
        self.num_notices += len(notices)

    # --- past and present ---------------------------------------------------------------------------

    def show_past(self, state: EngineState) -> None:
        """Show the engine as it was."""
        self.past = state

    def show_live(self) -> None:
        """Back to the engine as it is."""
        self.past = None

    @property
    def present(self) -> EngineState:
        """The engine now; an empty state while there is none."""
        return self.live or NO_ENGINE

    @property
    def shown(self) -> EngineState:
        """What the widgets draw: past or present."""
        return self.past or self.live or NO_ENGINE

    @property
    def quiet_seconds(self) -> float:
        """How long ago the live engine last reported anything; 0 if it never did."""
        return self._clock() - self._heard_at if self.present.mirror.last is not None else 0.0

    # --- reading: of the state that is shown --------------------------------------------------------

    def name(self, seq_id: int) -> str:
        """The sequence's label on one line, free of control characters, or its number where it has none."""
        label = self.past.labels.get(seq_id) if self.past is not None else None
        return one_line(label or self.labels.get(seq_id, "")) or self._unlabelled(seq_id)

    def _unlabelled(self, seq_id: int) -> str:
        states = (self.past, self.live)
        is_beam = any(state is not None and state.groups.is_beam(seq_id) for state in states)
        return unlabelled(seq_id, is_beam=is_beam)

    @property
    def info(self) -> EngineReady | None:
        """What the engine said when it was ready; None while there is no engine to show."""
        if self.server is not None:
            return self.server.info
        return None if self.shown is NO_ENGINE else self.shown.info

    @property
    def mirror(self) -> CacheMirror | None:
        """The cache; None while there is no engine to show."""
        return None if self.shown is NO_ENGINE else self.shown.mirror

    @property
    def paused(self) -> bool:
        """Whether the live scheduler is held."""
        return self.present.paused

    @property
    def history(self) -> deque[StepReport]:
        """The last reports, oldest first."""
        return self.shown.history

    @property
    def lines(self) -> deque[EventLine]:
        """The last event lines, oldest first."""
        return self.shown.lines

    @property
    def num_lines(self) -> int:
        """Lines told so far, those forgotten included."""
        return self.shown.num_lines

    @property
    def columns(self) -> StepColumns:
        """The last steps as columns of the batching timeline."""
        return self.shown.columns

    @property
    def step(self) -> int:
        """Number of the last step that ran; 0 before the first."""
        return self.shown.step

    @property
    def busy(self) -> bool:
        """Whether any sequence is running, or queued to."""
        return self.shown.busy

    @property
    def last_batch(self) -> int:
        """Sequences in the last step's batch; 0 when there is nothing to run."""
        return self.shown.last_batch

    @property
    def tokens_per_second(self) -> float:
        """Tokens generated per second over the last two seconds of report time; 0 when idle or paused."""
        return self.server.tokens_per_second if self.server is not None else self.shown.tokens_per_second

    def sequence_rate(self, seq_id: int) -> float:
        """The same of one sequence; 0 unless it is running."""
        if self.server is not None:
            return self.server.sequence_rate(seq_id)
        return self.shown.sequence_rate(seq_id)

    def fresh_copies(self) -> set[int]:
        """Blocks in use into which copy-on-write has copied just now."""
        return self.shown.fresh_copies()

    def recent_events(self, count: int) -> list[EventLine]:
        """The last `count` event lines, oldest first."""
        return self.shown.recent_events(count)

    def blocks_of(self, seq_id: int) -> tuple[int, int]:
        """How many device blocks a sequence has for itself, and how many it shares."""
        return self.shown.blocks_of(seq_id)

    def shared_with(self, seq_id: int) -> dict[int, int]:
        """Other sequences that hold blocks of this one -> how many of them."""
        return self.shown.shared_with(seq_id)
