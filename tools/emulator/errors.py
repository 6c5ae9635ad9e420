"""What can go wrong with the emulator, beside kernels that do not compile (`KernelCompileError`)."""

from pagedchat.errors import KernelError


class EmulatorMissingError(KernelError):
    """This machine cannot run kernels on its CPU: no C++ compiler, or another kind of CPU."""


class KernelFaultError(KernelError):
    """A launch did what no kernel may do; the message says what, and which thread where in the source."""
