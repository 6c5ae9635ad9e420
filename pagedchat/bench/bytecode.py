"""Has programs that are measured start as installed ones do: with what Python has compiled of them kept on disk."""

from pathlib import Path


def kept_bytecode(folder: Path) -> dict[str, str]:
    """What a program's environment has to say for that; the first one that runs with it writes it.

    In a checkout, or where `PYTHONDONTWRITEBYTECODE` is set, each start would compile the package anew, which takes
    longer than all else that it does until the first frame.
    """
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}
