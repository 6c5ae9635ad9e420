"""The runner of rank 0: whatever it runs, the others are told to run as well. Knows no tensors."""

import time

from pagedchat.distributed.batches import Teller
from pagedchat.distributed.workers import Workers, like
from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, SchedulerOutput
from pagedchat.errors import DeviceError, PagedChatError, first_line

_CATCHES_UP = 5.0
"""Seconds in which the others end a batch after rank 0 has failed at it, if they end it at all."""


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
        try:
            output = self.own.execute(batch)
            self.workers.check()  # a sum that somebody was missing in means nothing
            output.rank_seconds = (time.perf_counter() - began, *self.workers.step_seconds)
            return output
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
