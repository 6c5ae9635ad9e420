"""How the CPU threads of torch wait for each other. Must be said before torch is loaded."""

import os

_SPIN_COUNT = "3000"
"""Rounds (some ten microseconds) that a thread spins at a barrier before it sleeps.

GNU OpenMP spins for milliseconds by default. On an idle machine that is best by a little; but where another
program is busy, or the screen of this one, a spinning thread keeps the very core on which the thread that it
waits for wants to run. A decode step of a model with 14 million parameters on two cores, idle and beside one
busy process, took 3.2 and 720 ms with the default and 4 and 13 ms with this.
"""


def spin_briefly() -> None:
    """Make OpenMP threads sleep soon where they wait, unless the user's environment says otherwise."""
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT
