"""`python -m pagedchat`, and what the command `pagedchat` calls."""

import sys

from pagedchat.garbage import imports


def run() -> int:
    """Run the command line of this process and return its exit code."""
    with imports():
        from pagedchat.cli.main import main  # noqa: PLC0415 - nothing becomes garbage by it

    return main()


if __name__ == "__main__":
    sys.exit(run())
