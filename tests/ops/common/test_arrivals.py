"""Counters of thread blocks: each stream has its own; those of CUDA graphs stay where graphs know them to be."""

import pytest
import torch

from pagedchat.ops.common import arrivals
from pagedchat.ops.common.arrivals import arrival_counters, handover_words

CPU = torch.device("cpu")


class Streams:
    """Which stream is current, and whether what is queued there is captured."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.current, self.capturing = 1, False
        patch.setattr(arrivals, "_memory", {})
        patch.setattr(arrivals, "current_stream", lambda _device: self.current)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)

    def counters(self, stream: int, count: int = 8, *, capturing: bool = False) -> torch.Tensor:
        self.current, self.capturing = stream, capturing
        return arrival_counters(CPU, count)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(monkeypatch)


def test_streams_do_not_share_counters_and_graphs_have_others(streams: Streams) -> None:
    each = [streams.counters(1), streams.counters(2), streams.counters(1, capturing=True)]
    assert len({counters.data_ptr() for counters in each}) == 3
    assert streams.counters(1) is each[0]
    assert all(counters.dtype == torch.int32 and not counters.any() for counters in each)


def test_those_of_a_graph_stay_whatever_streams_launch_afterwards(streams: Streams) -> None:
    streams.counters(1)
    captured = streams.counters(1, capturing=True)
    streams.counters(2)  # another shelf of graphs tries a step out on a stream of its own
    streams.counters(1, 1 << 20)  # a launch of more thread blocks than there are counters
    streams.counters(3, 1 << 20)
    for stream in (1, 2, 3):
        assert streams.counters(stream, capturing=True) is captured


def test_a_launch_that_needs_more_has_more(streams: Streams) -> None:
    few, many = streams.counters(1), streams.counters(1, 1 << 20)
    assert len(few) < len(many) == 1 << 20
    assert streams.counters(1) is many
    own = streams.counters(1, (1 << 20) + 1, capturing=True)
    assert len(own) == (1 << 20) + 1
    assert streams.counters(1, capturing=True) is not own


def test_words_to_hand_over_are_kept_like_counters_and_apart_from_them(streams: Streams) -> None:
    counters = streams.counters(1)
    words, more = handover_words(CPU, 8), handover_words(CPU, 1 << 21)
    assert words.dtype == more.dtype == torch.int32
    assert bool((words == -1).all())
    assert bool((more == -1).all())
    assert handover_words(CPU, 8) is more
    streams.capturing = True
    captured = handover_words(CPU, 8)
    assert captured is handover_words(CPU, 8)
    assert bool((captured == -1).all())
    assert len({each.data_ptr() for each in (counters, words, more, captured)}) == 4


def test_what_a_step_was_given_is_good_for_others_too(streams: Streams) -> None:
    """Steps run where nothing is recorded for gradients; what they leave may be written elsewhere."""
    with torch.inference_mode():
        first = streams.counters(1)
    assert streams.counters(1) is first
    first.zero_()


@pytest.mark.gpu
def test_graphs_recorded_on_several_streams_of_a_gpu_share_them() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    found = []
    for _ in range(3):
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            arrival_counters(device, 8)  # a step is tried out before it is recorded
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                counters = arrival_counters(device, 8)
                counters.zero_()
        found.append(counters.data_ptr())
    assert len(set(found)) == 1
