"""Argument checks shared by the ops: each message names the argument, what was expected and what came."""

from typing import Protocol

import torch


class Shaped(Protocol):
    """A tensor, or what stands for one."""

    @property
    def shape(self) -> torch.Size:
        """Its sizes."""


def check_shape(name: str, tensor: Shaped, *expected: int | None) -> None:
    """Refuse a tensor whose shape is not `expected`; `None` stands for any size.

    Raises:
        ValueError: wrong number of dimensions, or a wrong size.
    """
    shape = tensor.shape
    fits = len(shape) == len(expected)
    for size, wanted in zip(shape, expected, strict=False):  # a plain loop: this runs in every layer
        if wanted is not None and size != wanted:
            fits = False
    if not fits:
        shown = ", ".join("*" if wanted is None else str(wanted) for wanted in expected)
        raise ValueError(f"{name} has shape {list(shape)}, expected [{shown}]")


def check_dtype(name: str, tensor: torch.Tensor, expected: torch.dtype) -> None:
    """Refuse a tensor of another element type.

    Raises:
        ValueError: another type.
    """
    if tensor.dtype != expected:
        raise ValueError(f"{name} is {tensor.dtype}, expected {expected}")


def check_same_type(name: str, tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Refuse a tensor that differs from `other` in element type or device.

    Raises:
        ValueError: it differs.
    """
    if tensor.dtype != other.dtype or tensor.device != other.device:
        raise ValueError(f"{name} is {tensor.dtype} on {tensor.device}, expected {other.dtype} on {other.device}")


def check_columns(name: str, tensor: torch.Tensor, *, alone: bool) -> None:
    """Refuse a matrix that is neither contiguous nor, unless it stands alone, some columns of one that is, in whole
    pieces of 16 bytes.

    Raises:
        ValueError: it lies in another way.
    """
    pieces = (tensor.stride(0) * tensor.itemsize, tensor.data_ptr()) if tensor.is_cuda else ()
    in_columns = tensor.stride(1) == 1 and not any(number % 16 for number in pieces)
    if not tensor.is_contiguous() and (alone or not in_columns):
        raise ValueError(f"{name} is not contiguous" + ("" if alone else ", nor whole columns of a wider one"))


def check_of_heads(name: str, tensor: torch.Tensor, query: torch.Tensor) -> None:
    """Refuse anything but one float32 number for each head of `query`, `[num_tokens, num_heads, head_size]`.

    Raises:
        ValueError: another shape or type, with gaps, or on another device.
    """
    check_shape(name, tensor, query.shape[1])
    check_dtype(name, tensor, torch.float32)
    if tensor.device != query.device or not tensor.is_contiguous():
        raise ValueError(
            f"{name} is on {tensor.device} with a stride of {tensor.stride(0)}, expected {query.device} with 1"
        )


def check_pairs(src: torch.Tensor, dst: torch.Tensor) -> None:
    """Refuse lists of block ids that are not one-dimensional int64 of equal length.

    Raises:
        ValueError: they are not.
    """
    check_dtype("src", src, torch.int64)
    check_dtype("dst", dst, torch.int64)
    check_shape("src", src, None)
    check_shape("dst", dst, src.shape[0])
