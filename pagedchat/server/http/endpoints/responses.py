"""`POST /v1/responses`: a conversation answered, told in items. Nothing of it is stored."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat.server.http.answering import GeneratedAnswer, Writer, whole
from pagedchat.server.http.conversation import Asked, Conversation
from pagedchat.server.http.endpoints.common import check_model, check_reply, new_id, now, parameters, ready
from pagedchat.server.http.logprobs import chat_logprobs as told_logprobs
from pagedchat.server.http.reading import BodyReader
from pagedchat.server.http.response_items import Event, ResponseItems, drained
from pagedchat.server.http.responses_input import messages_of, sampled, tools_of, wants_logprobs
from pagedchat.server.http.sampling import chat_logprobs
from pagedchat.server.http.schemas.chat import ChatLogprob
from pagedchat.server.http.schemas.responses import (
    Incomplete,
    InputTokensDetails,
    OutputTokensDetails,
    ResponseObject,
    ResponsesBody,
    ResponseUsage,
)
from pagedchat.server.http.streaming import named_event
from pagedchat.server.http.tools import offered
from pagedchat.server.http.without_effect import check_no_effect
from pagedchat.server.replies.parts import Part, Text, Thought
from pagedchat.server.served import Served

if TYPE_CHECKING:
    from pagedchat.outputs import CompletionOutput

_READER = BodyReader(ResponsesBody, "input", {"max_tokens": "max_output_tokens", "response_format": "text.format"})
_encode = msgspec.json.Encoder().encode


async def responses(request: Request) -> Response:
    """Answer one body."""
    served = ready(request)
    body = await _READER.read(request, served.max_body)
    info = check_model(served, body.model)
    check_no_effect(body)
    messages = messages_of(body, info.max_model_len)
    tools = offered(*tools_of(body), served.tool_format, body.parallel_tool_calls)
    logprobs = chat_logprobs(wants_logprobs(body) or bool(body.top_logprobs), body.top_logprobs)
    params, naming = parameters(
        sampled(body), served, _READER.naming, tools.form if tools is not None else None,
        max_tokens=body.max_output_tokens, logprobs=logprobs, skip_special_tokens=None if tools is None else False,
    )  # fmt: skip
    effort = body.reasoning.effort if body.reasoning is not None else None
    asked = Asked(
        messages=messages,
        params=params,
        tools=tools,
        template_kwargs=({} if effort is None else {"reasoning_effort": effort})
        | (body.chat_template_kwargs or {}),
    )
    answer = _Answer(served, body, asked)
    return GeneratedAnswer(served.admission, 1, answer.stream if body.stream else whole(answer.whole), naming)


class _Answer:
    """One body on its way to an answer."""

    def __init__(self, served: Served, body: ResponsesBody, asked: Asked) -> None:
        self._body = body
        self._asked = asked
        self._model = served.name
        self._conversation = Conversation(served, asked)
        self._items = ResponseItems()
        self._id, self._created = new_id("resp"), now()
        self._sequence_number = 0

    async def whole(self) -> bytes:
        """Everything at once."""
        reason: str | None = None
        async for reply, parts in self._replies():
            reason = check_reply(reply)
            self._add_all(reply, parts)
        drained(self._items.close(_status(reason)))
        return _encode(await self._finished(reason))

    async def stream(self, writer: Writer) -> None:
        """Piece by piece."""
        reason: str | None = None
        async for frames, ended in self._frames():
            reason = ended or reason
            await writer.events(frames)
        last = b"".join(map(self._frame, self._items.close(_status(reason))))
        told = await self._finished(reason)
        await writer.end(last + self._frame({"type": f"response.{told.status}", "response": told}))

    async def _frames(self) -> AsyncGenerator[tuple[bytes, str | None], None]:
        begun = False
        async for reply, parts in self._replies():
            frames = b""
            if not begun:
                begun, response = True, self._told("in_progress")
                for kind in ("response.created", "response.in_progress"):
                    frames += self._frame({"type": kind, "response": response})
            reason = check_reply(reply)
            logprobs = self._logprobs(reply)
            for part in parts:
                frames += b"".join(map(self._frame, self._items.add(part, logprobs)))
                logprobs = []
            if frames or reason:
                yield frames, reason

    async def _replies(self) -> "AsyncGenerator[tuple[CompletionOutput, list[Part]]]":
        parser, has_parser = None, False
        async for output in self._conversation.outputs():
            if not has_parser:
                parser, has_parser = self._conversation.parser(), True
            for reply in output.outputs:
                if parser is None:
                    parts: list[Part] = [Text(reply.text)] if reply.text else []
                else:
                    parts = parser.feed(reply.text)
                    parts += parser.finish() if reply.finish_reason is not None else []
                for part in parts:
                    if isinstance(part, Thought):
                        self._conversation.add_thought(part.text)
                yield reply, parts

    def _add_all(self, reply: "CompletionOutput", parts: list[Part]) -> None:
        logprobs = self._logprobs(reply)
        for part in parts:
            drained(self._items.add(part, logprobs if isinstance(part, Text) else None))
            logprobs = [] if isinstance(part, Text) else logprobs

    def _logprobs(self, reply: "CompletionOutput") -> list[ChatLogprob]:
        top = self._asked.params.logprobs
        return [] if top is None else told_logprobs(reply.token_ids, reply.logprobs or [], top).content

    def _frame(self, event: Event) -> bytes:
        number, self._sequence_number = self._sequence_number, self._sequence_number + 1
        return named_event(event["type"], {**event, "sequence_number": number})

    async def _finished(self, reason: str | None) -> ResponseObject:
        usage = self._conversation.tally.usage()
        details = OutputTokensDetails(reasoning_tokens=await self._conversation.num_thought_tokens() or 0)
        told = self._told(_status(reason))
        return msgspec.structs.replace(
            told,
            output=[msgspec.Raw(_encode(item)) for item in self._items.items],
            incomplete_details=Incomplete(reason="max_output_tokens") if reason == "length" else None,
            usage=ResponseUsage(
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.completion_tokens,
                total_tokens=usage.total_tokens,
                input_tokens_details=InputTokensDetails(cached_tokens=usage.prompt_tokens_details.cached_tokens),
                output_tokens_details=details,
            ),
        )

    def _told(self, status: Literal["in_progress", "completed", "incomplete"]) -> ResponseObject:
        body, params = self._body, self._asked.params
        others: dict[str, Any] = (
            {"text": body.text} if body.text is not None and body.text.format is not None else {}
        )
        return ResponseObject(
            id=self._id,
            created_at=self._created,
            model=self._model,
            status=status,
            output=[],
            instructions=body.instructions,
            temperature=params.temperature,
            top_p=params.top_p,
            max_output_tokens=body.max_output_tokens,
            tools=body.tools or [],
            tool_choice=body.tool_choice or "auto",
            parallel_tool_calls=body.parallel_tool_calls is not False,
            reasoning=body.reasoning,
            metadata=body.metadata or {},
            **others,
        )


def _status(reason: str | None) -> Literal["completed", "incomplete"]:
    return "incomplete" if reason == "length" else "completed"
