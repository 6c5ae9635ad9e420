"""One rank of a sum that is measured: `python -m pagedchat.bench.ranks.sum_worker RANK SIZE FOLDER DEVICE WAY`.

All ranks do the same number of sums, whatever these take, since each waits for the others. Rank 0 writes down the
median of each number of rows.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # sums by peer memory alone, as ours are
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch

from pagedchat.bench.ranks.sums import GLOO, NCCL, NUMS_ROWS, ONE_SHOT, OURS, WIDTH
from pagedchat.distributed.group import RankGroup
from pagedchat.distributed.joining import shares_gpu
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import Update, add_norm

dist: Any = torch.distributed
CALLS, REPLAYS = 200, 30
FEW_CALLS, FEW_REPLAYS = 10, 5
"""Where ranks take turns on one GPU, or on the cores of a CPU."""
Call = Callable[[], object]


def main(argv: list[str]) -> int:
    """Measure, and write down the figure; returns the exit code."""
    rank, size, folder, place, way = int(argv[0]), int(argv[1]), argv[2], argv[3], argv[4]
    shares = place == "cuda" and shares_gpu()
    device = torch.device("cpu") if place == "cpu" else torch.device("cuda", 0 if shares else rank)
    if place == "cpu":
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    group = RankGroup(rank, size, folder, device, shares_device=shares)
    if way != OURS:
        _join_default(way, rank, size, folder)
    few = shares or place == "cpu"
    measure = _measure_host if place == "cpu" else _measure_graph
    calls, replays = (FEW_CALLS, FEW_REPLAYS) if few else (CALLS, REPLAYS)
    us = [measure(_call(way, group, num_rows), group, calls, replays) for num_rows in NUMS_ROWS]
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(us), "utf-8")
    group.least([0])  # nobody leaves before all have ended
    sys.stdout.flush()
    os._exit(0)  # without the farewells of libraries, which wait for each other


def _call(way: str, group: RankGroup, num_rows: int) -> Call:
    """A sum over ranks, added to a residual stream, and its norm."""
    kind = torch.float32 if group.device.type == "cpu" else torch.bfloat16 if way == ONE_SHOT else torch.float16
    hidden = torch.zeros(num_rows, WIDTH, dtype=kind, device=group.device)
    rows = torch.full_like(hidden, 0.01)
    norm = Norm("rms", torch.ones(WIDTH, dtype=kind, device=group.device), None, 1e-5)
    if way == OURS:
        return lambda: group.add_norm(hidden, Update(rows), norm)
    if way in (NCCL, GLOO):
        rows.zero_()  # it is summed where it is, again and again

        def by_library() -> object:
            dist.all_reduce(rows)
            return add_norm(hidden, rows, norm, overlap=False)

        return by_library
    return _one_shot(rows, hidden, norm)


def _one_shot(rows: torch.Tensor, hidden: torch.Tensor, norm: Norm) -> Call:
    import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415 - of this way alone

    shared: torch.Tensor = symmetric.empty(rows.shape, dtype=rows.dtype, device=rows.device)
    shared.copy_(rows)
    name = dist.group.WORLD.group_name
    symmetric.rendezvous(shared, name)
    one_shot: Any = torch.ops.symm_mem.one_shot_all_reduce
    return lambda: add_norm(hidden, one_shot(shared, "sum", name), norm, overlap=False)


def _join_default(way: str, rank: int, size: int, folder: str) -> None:
    """The other libraries' group is torch's default one."""
    store = dist.FileStore(f"{folder}/default", size)
    dist.init_process_group(
        "gloo" if way == GLOO else "nccl", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )


def _measure_graph(call: Call, group: RankGroup, calls: int, replays: int) -> float:
    """Microseconds of a call in a graph of many; a replay before brings the ranks together."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    group.least([0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        _ = [call() for _ in range(calls)]
    samples: list[float] = []
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        group.least([0])
        graph.replay()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        samples.append(1e3 * start.elapsed_time(end) / calls)
    return median(samples)


def _measure_host(call: Call, group: RankGroup, calls: int, replays: int) -> float:
    """Microseconds of a call by the clock."""
    samples = []
    for _ in range(replays):
        group.least([0])
        began = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append(1e6 * (time.perf_counter() - began) / calls)
    return median(samples)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
