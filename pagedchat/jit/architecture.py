"""GPU architectures by name: which there are, which a device has, and what the compiler is told."""

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""Those that every kernel is compiled for in the tests, from Turing to Blackwell."""
_ARCHITECTURE_SPECIFIC = frozenset({"sm_90", "sm_100", "sm_103"})
"""Those with instructions (wgmma, tcgen05) that only code for exactly this architecture may use."""


def architecture_of(major: int, minor: int) -> str:
    """The name of a compute capability: `(9, 0)` is `"sm_90"`."""
    return f"sm_{major}{minor}"


def compiler_target(architecture: str) -> str:
    """What NVRTC compiles for: `"sm_90"` with all its instructions is `"sm_90a"`."""
    return f"{architecture}a" if architecture in _ARCHITECTURE_SPECIFIC else architecture
