"""Copies and waits that streams are told of past torch."""

import pytest
import torch

from pagedchat.errors import KernelError
from pagedchat.jit.async_copy import copy_to_device, record_event, wait_for_event


@pytest.mark.gpu
def test_a_stream_that_waits_finds_what_another_one_has_copied() -> None:
    source, there = torch.arange(1 << 24).pin_memory(), torch.zeros(1 << 24, dtype=torch.int64, device="cuda")
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    side.wait_stream(torch.cuda.current_stream())
    event.record(side)
    copy_to_device(there.data_ptr(), source.data_ptr(), source.numel() * source.itemsize, side.cuda_stream)
    record_event(event.cuda_event, side.cuda_stream)
    wait_for_event(torch.cuda.current_stream().cuda_stream, event.cuda_event)
    assert torch.equal((there * 2).cpu(), source * 2)


@pytest.mark.gpu
def test_what_the_driver_refuses_has_its_name() -> None:
    torch.zeros(1, device="cuda")
    with pytest.raises(KernelError, match=r"refused cuMemcpyHtoDAsync_v2: CUDA_ERROR_INVALID_VALUE"):
        copy_to_device(0, 0, 8, 0)
