"""The engine process, with room for as little of what the screen does not read as a test has time to fill."""

import sys

from pagedchat.service import child, outbox

LITTLE = 30_000
"""Bytes."""

if __name__ == "__main__":
    outbox.Outbox.__init__.__defaults__ = (LITTLE,)
    sys.exit(child.main())
