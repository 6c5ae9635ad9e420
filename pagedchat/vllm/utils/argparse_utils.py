"""`vllm.utils.argparse_utils`: a command line on which `--max_tokens` is as good as `--max-tokens`."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Takes options with underscores too."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse does it."""
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args([_with_dashes(arg) for arg in given], namespace)


def _with_dashes(arg: str) -> str:
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value
