"""A user who does anything at any time, with chats and with the engine."""

from collections import Counter
from random import Random

from pagedchat.chat.session import ChatSession
from pagedchat.service import commands as cmd
from tests.simulation.ui_process import SimulatedUi

MAX_CHATS = 9
ACTIONS = {
    "ask": 14, "stop": 2, "regenerate": 2, "fork": 3, "close": 1.5, "new": 3, "focus": 2, "settings": 2,
    "pause": 0.5, "resume": 1.5, "step_once": 1, "pace": 0.3, "limit": 0.7, "pin": 0.7, "unpin": 0.5, "evict": 0.5,
    "flush": 0.2, "system": 0.3, "broadcast": 0.5, "beam": 2, "program": 6, "leave": 1.5,
}  # fmt: skip
_WORDS = ("Tell me", " of the sea", " of a boat", ", please", " once more", "é€", "\n", "</s>", " and then")


class User:
    """Whoever sits in front of one UI process.

    Args:
        ui: the process.
        choose: what is done.
        seen: counts it.
    """

    def __init__(self, ui: SimulatedUi, choose: Random, seen: Counter[str]) -> None:
        self._ui, self._random, self._seen = ui, choose, seen
        self._desk, self._client = ui.desk, ui.client
        self._desk.new()

    def act(self) -> None:
        """One thing."""
        (name,) = self._random.choices(list(ACTIONS), list(ACTIONS.values()))
        self._seen[f"user: {name}"] += 1
        getattr(self, name)()

    def let_go(self) -> None:
        """Undo whatever keeps the engine from running."""
        self._send(cmd.Resume(), cmd.SetPace(0.0), cmd.SetLimit(None), cmd.Unpin(None))

    def _send(self, *commands: cmd.AnyCommand) -> None:
        for command in commands:
            self._client.send(command)

    def _some(self) -> ChatSession:
        return self._random.choice(self._desk.chats)

    # --- chats --------------------------------------------------------------------------------------

    def _prompt(self) -> str:
        return "".join(self._random.choices(_WORDS, k=self._random.randint(1, 5)))

    def ask(self) -> None:
        self._desk.submit(self._some(), self._prompt())

    def beam(self) -> None:
        """A reply that is searched; of another one it would not be known where a stop string ends it."""
        chat, choose = self._some(), self._random
        if not chat.busy:
            chat.set_sampling("stop", None)
            chat.set_sampling("max_tokens", choose.choice((1, 5, 30)))
            self._desk.search(chat, choose.choice((1, 2, 4)), self._prompt())

    def broadcast(self) -> None:
        prompt = self._prompt()
        for chat in self._desk:
            self._desk.submit(chat, prompt)

    def stop(self) -> None:
        self._desk.stop(self._some())

    def regenerate(self) -> None:
        self._desk.regenerate(self._some())

    def fork(self) -> None:
        if len(self._desk) < MAX_CHATS:
            self._desk.fork(self._some())

    def close(self) -> None:
        if len(self._desk) > 1:
            self._desk.close(self._some())

    def new(self) -> None:
        if len(self._desk) < MAX_CHATS:
            self._desk.new()

    def focus(self) -> None:
        self._desk.focus(self._some())

    def settings(self) -> None:
        chat, choose = self._some(), self._random
        chat.set_sampling("max_tokens", choose.choice((None, 1, 5, 30)))
        chat.set_sampling("stop", choose.choice((None, ["ab"], ["a", "ba"], ["cab", "€"])))  # type: ignore[arg-type]
        chat.set_sampling("seed", choose.choice((None, 7)))

    def system(self) -> None:
        self._some().set_system(self._random.choice((None, "Be brief.")))

    # --- a program beside them ----------------------------------------------------------------------

    def program(self) -> None:
        self._ui.program.ask()

    def leave(self) -> None:
        self._ui.program.leave()

    # --- the engine ---------------------------------------------------------------------------------

    def pause(self) -> None:
        self._send(cmd.Pause())

    def resume(self) -> None:
        self._send(cmd.Resume())

    def step_once(self) -> None:
        self._send(cmd.StepOnce(self._random.randint(1, 5)))

    def pace(self) -> None:
        self._send(cmd.SetPace(self._random.choice((0.0, 0.1, 2.0))))

    def limit(self) -> None:
        self._send(cmd.SetLimit(self._random.choice((None, *range(self._ui.limits.num_blocks + 2)))))

    def _block(self) -> int:
        mirror = self._ui.view.mirror
        findable = [b for b, h in enumerate(mirror.block_hashes) if h is not None] if mirror else []
        return self._random.choice([*findable, self._random.randrange(-1, self._ui.limits.num_blocks + 1)])

    def pin(self) -> None:
        self._send(cmd.Pin(self._block()))

    def unpin(self) -> None:
        self._send(cmd.Unpin(self._random.choice((None, self._block()))))

    def evict(self) -> None:
        self._send(cmd.Evict(self._block()))

    def flush(self) -> None:
        self._send(cmd.FlushCache())
