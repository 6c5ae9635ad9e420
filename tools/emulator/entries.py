"""The entry points of a kernel file, and what a launch of the emulator needs to call them."""

import re
from dataclasses import dataclass

from tools.emulator.scan import closing

_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+')
_WORD = re.compile(r"\s*(\w+)\s*(\()?")
_ATTRIBUTES = ("__launch_bounds__", "__cluster_dims__")


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel."""

    name: str
    cluster: str
    """Thread blocks of a cluster along x: a constant expression."""

    @property
    def glue(self) -> str:
        """C++ that Python calls: sizes of parameters, cluster, launch."""
        exported = 'extern "C" __attribute__((visibility("default")))'
        return (
            f"{exported} int emulated_sizes_{self.name}(int* sizes) "
            f"{{ return emulator::parameter_sizes({self.name}, sizes); }}\n"
            f"{exported} unsigned emulated_cluster_{self.name}() {{ return {self.cluster}; }}\n"
            f"{exported} const char* emulated_launch_{self.name}(void** arguments, const emulator::Shape* shape) "
            f"{{ return emulator::launch({self.name}, arguments, *shape); }}\n"
        )


def find_entries(text: str) -> list[Entry]:
    """In preprocessed kernel text."""
    return [_entry(text, match.end()) for match in _ENTRY.finditer(text)]


def _entry(text: str, at: int) -> Entry:
    """Skips attributes and the type up to the first name with parameters."""
    cluster = "1"
    while word := _WORD.match(text, at):
        at = word.end()
        if word[2] is None:
            continue
        if word[1] not in _ATTRIBUTES:
            return Entry(word[1], cluster)
        end = closing(text, word.end() - 1)
        if word[1] == "__cluster_dims__":
            cluster = text[word.end() : end].partition(",")[0].strip()
        at = end + 1
    raise ValueError(f"a kernel without a name: {text[at : at + 40]!r}")
