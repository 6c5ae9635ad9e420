"""Generation in this process: requests on an engine, token ids turned to text as they come.

Knows the engine and the output processor; neither models nor processes nor the screen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pagedchat.chat.output_processor import OutputProcessor
from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence as EngineSequence
from pagedchat.events import FinishReason, StepReport
from pagedchat.rare_collections import rare_collections


@dataclass(slots=True, kw_only=True)
class Request:
    """One generation: what was asked, and what has come back so far."""

    request_id: str
    prompt: str | None
    """The text, where it was given as such."""
    prompt_token_ids: list[int]
    params: SamplingParams
    processor: OutputProcessor
    """Turns token ids into text and finds stop strings; without a tokenizer the text stays empty."""
    token_ids: list[int] = field(default_factory=list)
    num_cached_tokens: int = 0
    """Prompt tokens that were found in the prefix cache and not computed again."""
    finish_reason: FinishReason | None = None
    """None while it is on its way."""


def generate(core: EngineCore, requests: Sequence[Request]) -> Iterator[Request]:
    """Run all requests together; after each step yields those that it brought forward.

    Every request has a sequence of its own, closed when the request is done, so that its full blocks stay in the
    prefix cache for the next one.

    Raises:
        RequestError: a prompt that cannot be served; nothing was run then.
    """
    running: dict[int, Request] = {}
    try:
        with rare_collections():
            _extend_all(core, requests, running)
            while running:
                yield from _take_in(core, running, core.step())
    finally:
        for seq_id in running:
            core.close(seq_id)


def _extend_all(core: EngineCore, requests: Sequence[Request], running: dict[int, Request]) -> None:
    first_id = max(core.sequences, default=0) + 1
    for seq_id, request in enumerate(requests, first_id):
        core.open(seq_id)
        running[seq_id] = request
        core.extend(seq_id, request.prompt_token_ids, request.params)


def _take_in(core: EngineCore, running: dict[int, Request], report: StepReport) -> Iterator[Request]:
    for entry in report.batch:
        if entry.token_ids:
            request, seq = running[entry.seq_id], core.sequences[entry.seq_id]
            _append(request, seq, entry.token_ids)
            if request.processor.stopped:
                core.stop(seq.seq_id, "stop")
            if seq.status == "parked":
                _finish(request, seq)
                del running[seq.seq_id]
                core.close(seq.seq_id)
            yield request


def _append(request: Request, seq: EngineSequence, token_ids: list[int]) -> None:
    request.token_ids.extend(token_ids)
    ended_by_token = seq.finish_reason == "stop" and token_ids[-1] in seq.stop_token_ids
    request.processor.append(token_ids[:-1] if ended_by_token else token_ids)


def _finish(request: Request, seq: EngineSequence) -> None:
    request.processor.finish()
    request.finish_reason = "stop" if request.processor.stopped else seq.finish_reason
    request.num_cached_tokens = seq.num_cached_tokens
