"""How a conversation becomes the text that a model is to continue, and when: at once, or beside the engine's loop.

A checkpoint's own template may take until its limit of time. So a thread waits for it while the loop goes on with
its steps, and the text comes back through the inbox. Knows no engine and no sequences.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.service.commands import Generate
from pagedchat.service.text_model import TextModel

log = logging.getLogger("pagedchat.engine")


@dataclass(eq=False, slots=True)
class RenderJob:
    """A request whose prompt is to become text."""

    command: Generate
    params: SamplingParams
    """The command's settings over the model's."""
    asked: float
    """When the command came in, in seconds."""
    wanted: bool = True
    """False once it was stopped: then it need not be begun with."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What became of a job."""

    job: RenderJob
    text: str = ""
    error: BaseException | None = None
    """Why there is no text."""


class Renderer(Protocol):
    """Writes prompts."""

    def submit(self, job: RenderJob) -> str | None:
        """The text; None where it comes later, as a `Rendered` in the inbox.

        Raises:
            RequestError: there is none.
        """
        ...


class RenderAtOnce:
    """Writes every prompt while it is asked for.

    Args:
        text_model: has the template.
    """

    def __init__(self, text_model: TextModel) -> None:
        self._text_model = text_model

    def submit(self, job: RenderJob) -> str | None:
        """The text."""
        return self._text_model.render(job.command)


class RenderAside:
    """Writes prompts for which a checkpoint's own template is needed in a thread, one after another.

    Args:
        text_model: has the template, whose `run` has a limit of time.
        answer: called in the thread with what became of each job.
    """

    def __init__(self, text_model: TextModel, answer: Callable[[Rendered], object]) -> None:
        self._text_model = text_model
        self._answer = answer
        self._jobs: SimpleQueue[RenderJob] = SimpleQueue()
        if text_model.template.kind == "model":
            threading.Thread(target=self._work, name="templates", daemon=True).start()

    def submit(self, job: RenderJob) -> str | None:
        """The text of what needs no template of the checkpoint's; None for the rest."""
        if job.command.raw or self._text_model.template.kind == "plain":
            return self._text_model.render(job.command)
        self._jobs.put(job)
        return None

    def _work(self) -> None:
        self._rehearse()
        while True:
            job = self._jobs.get()
            if job.wanted:
                self._answer(self._rendered(job))

    def _rehearse(self) -> None:
        """The first prompt finds the template compiled, and its process started."""
        try:
            self._text_model.template.render([Turn("user", "")])
        except Exception as error:  # an empty prompt may be no prompt; what is wrong with others is told with them
            log.info("The model's chat template on an empty prompt: %s", error)

    def _rendered(self, job: RenderJob) -> Rendered:
        try:
            return Rendered(job, self._text_model.render(job.command))
        except BaseException as error:  # the loop tells the session, or ends by it
            return Rendered(job, error=error)
