"""`python -m tools.emulator pytest ARGUMENTS...`: pytest with the ops' kernels on the CPU.

python -m tools.emulator pytest tests/ops/attention/test_decode_split.py -k cpu --emulator-seed 3
"""

import sys

import pytest


def main(arguments: list[str]) -> int:
    """What pytest returns; 2 for anything else than pytest."""
    if arguments[:1] != ["pytest"]:
        print(__doc__, file=sys.stderr)
        return 2
    return int(pytest.main(["-p", "tools.emulator.plugin", *arguments[1:]]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
