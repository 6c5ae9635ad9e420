"""What `--only` and `--peers` may name, and what stands for all when they are not given."""

from collections.abc import Collection
from importlib.util import find_spec

from pagedchat.errors import InvalidValueError

COMPILE = "compile"
SECTIONS = (
    "decode",
    "bytes",
    "prefill",
    "merge",
    "prefix",
    "write",
    "gather",
    "copy",
    "swap",
    "experts",
    "invariant",
    "quantized",
    COMPILE,
)
PEERS = ("torch", "flashinfer", "vllm")


def choose_sections(wanted: Collection[str] | None) -> frozenset[str]:
    """The sections asked for, or all.

    Raises:
        InvalidValueError: there is no such section.
    """
    return frozenset(SECTIONS if wanted is None else _known("--only", wanted, SECTIONS))


def choose_peers(wanted: Collection[str] | None) -> frozenset[str]:
    """The peers asked for, or all that are installed.

    Raises:
        InvalidValueError: there is no such peer, or it is not installed.
    """
    here = frozenset(peer for peer in PEERS if find_spec(peer) is not None)
    if wanted is None:
        return here
    for peer in _known("--peers", wanted, PEERS):
        if peer not in here:
            raise InvalidValueError(f"--peers: {peer} is not installed.", "Install it, or leave it out.")
    return frozenset(wanted)


def _known(option: str, wanted: Collection[str], known: Collection[str]) -> Collection[str]:
    for name in wanted:
        if name not in known:
            raise InvalidValueError(f"{option}: there is no {name!r}.", f"There are {', '.join(known)}.")
    return wanted
