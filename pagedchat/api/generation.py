"""Generation in this process: requests on an engine, token ids turned to text as they come.

Knows the engine and the output processor; neither models nor processes nor the screen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagedchat.chat.output_processor import OutputProcessor
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.events import FinishReason
from pagedchat.garbage import rare_collections


@dataclass(slots=True, kw_only=True)
class Request:
    """One generation: what was asked, and what has come back so far."""

    request_id: str
    prompt: str | None
    """The text, where it was given as such."""
    prompt_token_ids: list[int]
    params: SamplingParams
    processor: OutputProcessor | None
    """Turns token ids into text and finds stop strings; without one there is no text."""
    sequence: EngineSequence | None = None
    """Has its tokens, from when it is in the engine, and when it is gone from there."""
    num_read: int = 0
    """Generated tokens that the processor has taken."""
    num_cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache and not computed again."""
    finish_reason: FinishReason | None = None
    """None while it is on its way."""

    @property
    def num_tokens(self) -> int:
        """Tokens generated so far."""
        return 0 if self.sequence is None else len(self.sequence.token_ids) - self.sequence.num_prompt_tokens

    @property
    def token_ids(self) -> list[int]:
        """The tokens generated so far."""
        return [] if self.sequence is None else self.sequence.output_token_ids

    @property
    def text(self) -> str:
        """The same as text, as far as it cannot change any more."""
        return "" if self.processor is None else self.processor.text


def generate(core: EngineCore, requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Run all requests together; yields after each step those that are done now, often none.

    Every request has a sequence of its own, closed when the request is done, so that its full blocks stay in the
    prefix cache for the next one.

    Raises:
        RequestError: a prompt that cannot be served; nothing was run then.
    """
    running: dict[int, Request] = {}
    try:
        with rare_collections():
            _extend_all(core, requests, running)
            reading = [request for request in requests if request.processor is not None]
            num_changes = -1
            while running:
                core.step()
                for request in reading:
                    _read(core, request)
                changed = core.num_changes != num_changes
                num_changes = core.num_changes
                yield _take_out(core, running) if changed else []
    finally:
        for seq_id in running:
            core.close(seq_id)


def _extend_all(core: EngineCore, requests: Sequence[Request], running: dict[int, Request]) -> None:
    first_id = max(core.sequences, default=0) + 1
    for seq_id, request in enumerate(requests, first_id):
        core.open(seq_id)
        running[seq_id] = request
        request.sequence = core.sequences[seq_id]
        core.extend(seq_id, request.prompt_token_ids, request.params)


def _read(core: EngineCore, request: Request) -> None:
    """New tokens become text; a stop string in it ends the request."""
    seq, processor = request.sequence, request.processor
    if seq is None or processor is None:
        return
    token_ids = seq.token_ids[seq.num_prompt_tokens + request.num_read :]
    if not token_ids:
        return
    request.num_read += len(token_ids)
    ended_by_token = seq.finish_reason == "stop" and token_ids[-1] in seq.stop_token_ids
    processor.append(token_ids[:-1] if ended_by_token else token_ids)
    if processor.stopped:
        core.stop(seq.seq_id, "stop")


def _take_out(core: EngineCore, running: dict[int, Request]) -> list[Request]:
    """Those whose sequences have ended leave."""
    ended = [seq_id for seq_id in running if core.sequences[seq_id].status == "parked"]
    done = [running.pop(seq_id) for seq_id in ended]
    for seq_id, request in zip(ended, done, strict=True):
        _finish(request, core.sequences[seq_id])
        core.close(seq_id)
    return done


def _finish(request: Request, seq: EngineSequence) -> None:
    stopped = False
    if request.processor is not None:
        request.processor.finish()
        stopped = request.processor.stopped
    request.finish_reason = "stop" if stopped else seq.finish_reason
    request.num_cached_tokens = seq.num_cached_tokens
