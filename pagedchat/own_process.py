"""How a process of pagedchat's own is started: by the Python that runs, with the modules of this process.

`-P` and the path as it stands here: never a module out of the folder that the user is in.
"""

import os
import sys


def command(module: str) -> tuple[str, ...]:
    """What runs a module as a program."""
    return (sys.executable, "-P", "-m", module)


def environment() -> dict[str, str]:
    """Ours, importing from where this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
