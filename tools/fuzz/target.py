"""What is fuzzed: where its input comes from, and what must hold of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, simplefilter

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisWarning
from hypothesis.strategies import SearchStrategy

from tools.fuzz.bounds import SECONDS, bounded


@dataclass(frozen=True, slots=True)
class Target:
    """One reader of what others wrote."""

    name: str
    inputs: SearchStrategy[Any]
    check: Callable[[Any], None]
    """Raises where what must hold does not; whatever else comes out of it is a defect too."""
    seconds: float = SECONDS
    """What one example may take."""

    def hold(self, examples: int, number: int | None = None) -> None:
        """Run it on so many examples.

        Args:
            examples: how many.
            number: seed; the same one gives the same examples.

        Raises:
            Exception: the first failure, with its example made as small as can be in the notes.
        """

        def test(example: Any) -> None:
            with bounded(self.seconds):
                self.check(example)

        quiet = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
        )
        run = quiet(given(self.inputs)(test))
        with catch_warnings():
            simplefilter("ignore", HypothesisWarning)  # of examples that are long to print
            (run if number is None else seed(number)(run))()
