"""One prompt, one reply, no screen: `pagedchat -p TEXT` and prompts on standard input."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pagedchat.api.llm import LLM
from pagedchat.cache_events import FinishReason
from pagedchat.chat.sanitize import one_line, sanitize, terminal_json
from pagedchat.cli.progress_line import ProgressLine
from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import RequestError
from pagedchat.outputs import RequestOutput
from pagedchat.requests.conversations import Message

if TYPE_CHECKING:
    from pagedchat.history.one_reply import KeptReply


def run_oneshot(
    prompt: str,
    config: EngineConfig,
    overrides: SamplingOverrides,
    *,
    system: str | None = None,
    raw: bool = False,
    as_json: bool = False,
    kept: "KeptReply | None" = None,
) -> int:
    """Load the model, reply to `prompt` on standard output, return the exit code.

    Args:
        prompt: what the user says; with `raw` what the model is to continue.
        config: the model and the engine.
        overrides: sampling settings over the model's own.
        system: system prompt.
        raw: no chat template.
        as_json: one JSON object at the end instead of text as it comes.
        kept: the chat to go on with, in which this is kept; None for a reply that nobody keeps.

    Raises:
        PagedChatError: the model cannot be loaded or the prompt cannot be served.
    """
    started = time.perf_counter()
    llm = _load(config, chats=not raw)
    load_seconds = time.perf_counter() - started
    watch = _Stopwatch()
    if kept is None:
        reply = _reply(llm, prompt, overrides, system, raw)
    else:
        reply = _kept_reply(llm, prompt, overrides, system, kept)
    outputs = watch.time(reply)
    if not as_json:
        _print_stream(outputs, strip_start=not raw)
        return 0
    *_, output = outputs
    print(terminal_json(_summary(llm, output, load_seconds, watch, strip_start=not raw)))
    return int(output.outputs[0].finish_reason == "error")


class _Stopwatch:
    """Times a stream of outputs, in seconds from its first request for one."""

    def __init__(self) -> None:
        self.first = self.total = 0.0

    def time(self, outputs: Iterator[RequestOutput]) -> Iterator[RequestOutput]:
        started = time.perf_counter()
        for output in outputs:
            self.total = time.perf_counter() - started
            self.first = self.first or self.total
            yield output


def _reply(
    llm: LLM, prompt: str, overrides: SamplingOverrides, system: str | None, raw: bool
) -> Iterator[RequestOutput]:
    params = overrides.resolve(llm.sampling_defaults)
    if raw:
        return llm.stream(f"{system or ''}{prompt}", params)
    messages = [Message(role="system", content=system)] if system else []
    return llm.stream_chat([*messages, Message(role="user", content=prompt)], params)


def _kept_reply(
    llm: LLM, prompt: str, overrides: SamplingOverrides, system: str | None, kept: "KeptReply"
) -> Iterator[RequestOutput]:
    """The next turn of a chat; what is there of it is kept, however it ends."""
    messages = [Message(role=turn.role, content=turn.text) for turn in kept.ask(prompt, system, overrides)]
    reason: FinishReason = "abort"
    try:
        for output in llm.stream_chat(messages, kept.overrides.resolve(llm.sampling_defaults)):
            kept.write(_text(output, strip_start=True), llm.info.model)
            reason = output.outputs[0].finish_reason or reason
            yield output
    finally:
        kept.finish(reason, llm.info.model)
        for sentence in kept.close():
            print(one_line(sentence), file=sys.stderr)


def _print_stream(outputs: Iterator[RequestOutput], strip_start: bool) -> None:
    """Text as it comes; where people read it, without anything that a terminal could obey."""
    shown, reason = "", None
    for output in outputs:
        text, reason = _text(output, strip_start), output.outputs[0].finish_reason
        piece, shown = text[len(shown) :], text
        sys.stdout.write(sanitize(piece) if sys.stdout.isatty() else piece)
        sys.stdout.flush()
    print(flush=True)
    if reason == "error":
        raise RequestError("This reply ended by an error of pagedchat's own.", "Please report what is said above.")


def _text(output: RequestOutput, strip_start: bool) -> str:
    """In a chat, the white space between a label and the reply belongs to neither."""
    text = output.outputs[0].text
    return text.lstrip() if strip_start else text


def _summary(
    llm: LLM, output: RequestOutput, load_seconds: float, watch: _Stopwatch, strip_start: bool
) -> dict[str, Any]:
    reply = output.outputs[0]
    return {
        "model": llm.info.model,
        "text": _text(output, strip_start),
        "token_ids": reply.token_ids,
        "prompt_token_ids": output.prompt_token_ids,
        "finish_reason": reply.finish_reason,
        "timings": {
            "load_s": round(load_seconds, 4),
            "ttft_s": round(watch.first, 4),
            "total_s": round(watch.total, 4),
            "tokens_per_second": round(len(reply.token_ids) / watch.total, 2),
        },
        "cache": {"block_size": llm.info.block_size, **asdict(llm.stats())},
    }


def _load(config: EngineConfig, *, chats: bool) -> LLM:
    progress = ProgressLine(sys.stderr)
    try:
        llm = LLM.from_config(config, progress.show, chats=chats)
    finally:
        progress.clear()
    for notice in llm.notices:
        print(one_line(notice), file=sys.stderr)
    return llm
