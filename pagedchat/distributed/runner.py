"""The runner of rank 0: whatever it runs, the others are told to run as well. Knows no tensors."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pagedchat.distributed.batches import Teller
from pagedchat.distributed.messages import PrepareMore
from pagedchat.distributed.workers import Workers, like
from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, SchedulerOutput
from pagedchat.errors import DeviceError, PagedChatError, first_line

_CATCHES_UP = 5.0
"""Seconds in which the others end a batch after rank 0 has failed at it, if they end it at all."""


_T = TypeVar("_T")


class DistributedRunner:
    """See `engine.output.ModelRunner`.

    Args:
        own: of this rank's part.
        workers: the other ranks.
    """

    def __init__(self, own: ModelRunner, workers: Workers) -> None:
        self.own = own
        self.workers = workers
        self._teller = Teller()
        self._lost: PagedChatError | None = None

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        """See `ModelRunner`.

        Raises:
            DeviceError: a rank is lost; `check` says so from then on.
        """
        self.workers.tell(self._teller.tell(batch, self.workers.num_told + 1))
        began = time.perf_counter()
        output = self._with_all(partial(self.own.execute, batch))
        output.rank_seconds = (time.perf_counter() - began, *self.workers.step_seconds)
        return output

    def prepare_more(self, own: Callable[[], bool]) -> bool:
        """Have all ranks make ready one more thing at the same time; see `LoadedModel.prepare_more`.

        Args:
            own: does so on this rank.

        Raises:
            DeviceError: a rank is lost; `check` says so from then on.
        """
        self.workers.tell(PrepareMore(self.workers.num_told + 1))
        return self._with_all(own)

    def _with_all(self, do: Callable[[], _T]) -> _T:
        """Do on this rank what the others have been told to do."""
        try:
            result = do()
            self.workers.check()  # a sum that somebody was missing in means nothing
            return result
        except BaseException as error:
            # A sum in which somebody is missing fails here and nowhere else, mostly before it is known who.
            if self.workers.wait_done(_CATCHES_UP):
                raise  # they are where this one is: it has to do with the request
            self._lost = self.workers.loss() or DeviceError(
                f"Ranks are out of step: {first_line(error)}.", "The engine must start again."
            )
            self.workers.close()
            raise like(self._lost) from error

    def check(self) -> None:
        """See `ModelRunner`."""
        if self._lost is not None:
            raise like(self._lost)
        self.workers.check()
        self.own.check()
