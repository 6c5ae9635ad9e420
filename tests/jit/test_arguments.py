"""Packing needs no GPU: the bytes are what the driver would be given."""

import ctypes
import struct

import pytest

from pagedchat.errors import KernelError
from pagedchat.jit.arguments import Argument, Frame, Layout, misfit

PARAMETERS = [(0, 8), (8, 4), (12, 4), (16, 8), (24, 16)]
ARGS: tuple[Argument, ...] = (0x7F0000001000, -3, 0.5, -(2**40), b"sixteen bytes...")
CONFIG_BYTES = 56


def packed(frame: Frame, args: tuple[Argument, ...]) -> bytes:
    frame.pack(frame.buffer, 0, 1, 2, 3, 32, 4, 5, 1024, 0xABCDEF012345, frame.attributes, 1, *args)
    return frame.buffer.raw


def test_configuration_lies_as_in_the_drivers_struct() -> None:
    frame = Frame(Layout("k", PARAMETERS, ARGS))
    config = struct.unpack_from("@7IQQI", packed(frame, ARGS))
    assert config == (1, 2, 3, 32, 4, 5, 1024, 0xABCDEF012345, frame.attributes, 1)


def test_every_pointer_leads_to_its_argument() -> None:
    frame = Frame(Layout("k", PARAMETERS, ARGS))
    packed(frame, ARGS)
    places = (ctypes.c_void_p * len(ARGS)).from_address(frame.parameters)
    found = [ctypes.string_at(place, size) for place, (_, size) in zip(places, PARAMETERS, strict=True)]
    assert found == [struct.pack("<q", ARGS[0]), struct.pack("<i", -3), struct.pack("<f", 0.5),
                     struct.pack("<q", -(2**40)), b"sixteen bytes..."]  # fmt: skip


def test_frames_of_one_layout_share_no_memory() -> None:
    layout = Layout("k", PARAMETERS, ARGS)
    first, second = Frame(layout), Frame(layout)
    packed(first, ARGS)
    assert second.buffer.raw == bytes(len(second.buffer))


@pytest.mark.parametrize("cluster", [2, 16])
def test_clusters_come_first_and_overlap_may_be_left_out(cluster: int) -> None:
    frame = Frame(Layout("k", PARAMETERS, ARGS))
    raw = ctypes.string_at(frame.in_clusters(cluster), 144)
    assert struct.unpack_from("=IxxxxIII", raw) == (4, cluster, 1, 1)
    assert raw[72:] == ctypes.string_at(frame.attributes, 72)


def test_kernel_without_parameters_can_be_described() -> None:
    assert len(packed(Frame(Layout("k", [], ())), ())) >= CONFIG_BYTES


def test_wrong_number_of_arguments_is_said() -> None:
    with pytest.raises(KernelError, match=r"^Kernel k takes 5 arguments, got 4\.$"):
        Layout("k", PARAMETERS, ARGS[:4])
    error = misfit("k", Layout("k", PARAMETERS, ARGS), ARGS[:4], struct.error("x"))
    assert str(error) == "Kernel k takes 5 arguments, got 4."


@pytest.mark.parametrize(
    ("arg", "size", "said"),
    [
        (b"xyz", 16, "argument 0 is b'xyz', expected a value of 16 bytes"),
        (1, 16, "argument 0 is 1, expected a value of 16 bytes"),
        (None, 8, "argument 0 is None, expected a value of 8 bytes"),
    ],
)
def test_argument_that_does_not_fit_its_parameter_is_named(arg: Argument, size: int, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        Layout("k", [(0, size)], (arg,))


def test_number_too_large_for_its_parameter_is_refused() -> None:
    frame = Frame(Layout("k", [(0, 4)], (1,)))
    with pytest.raises(struct.error) as caught:
        packed(frame, (2**31,))
    assert "Kernel k does not take (2147483648,): " in str(misfit("k", frame.layout, (2**31,), caught.value))
