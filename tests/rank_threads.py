"""Ranks that are threads of one process: the same calls as over a process group, and exact sums."""

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import Update, add_norm

T = TypeVar("T")


class RankThreads:
    """As many as there are to be; `run` has all of them do the same.

    Sums are made in the order of the ranks, as a kernel of ours makes them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._given: list[torch.Tensor] = [torch.empty(0)] * size
        self._barrier = threading.Barrier(size, timeout=60)

    def run(self, task: Callable[["RankThread"], T]) -> list[T]:
        """What the task returns for each rank."""
        results: list[T | None] = [None] * self.size
        errors: list[BaseException] = []

        def of_rank(rank: int) -> None:
            try:
                results[rank] = task(RankThread(self, rank))
            except BaseException as error:
                errors.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise next((each for each in errors if not isinstance(each, threading.BrokenBarrierError)), errors[0])
        return results  # type: ignore[return-value]

    def exchange(self, rank: int, tensor: torch.Tensor) -> list[torch.Tensor]:
        """What all have."""
        self._given[rank] = tensor
        self._barrier.wait()
        given = list(self._given)
        self._barrier.wait()
        return given


class RankThread:
    """See `ops.ranks.company.Ranks`."""

    def __init__(self, threads: RankThreads, rank: int) -> None:
        self.rank, self.size = rank, threads.size
        self._threads = threads

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        first, *others = self._threads.exchange(self.rank, rows)
        total = first.clone()
        for other in others:
            total += other
        return total

    def add_norm(self, hidden: torch.Tensor, update: Update, norm: Norm | None) -> torch.Tensor:
        rows = update.rows if update.beside is None else update.rows + update.beside
        return add_norm(hidden, Update(self.sum(rows), None, update.norm, update.scale), norm)

    def least(self, numbers: list[int]) -> list[int]:
        given = self._threads.exchange(self.rank, torch.tensor(numbers))
        least: list[int] = torch.stack(given).amin(0).tolist()
        return least

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def side_by_side(self, columns: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._threads.exchange(self.rank, columns), dim=-1)
