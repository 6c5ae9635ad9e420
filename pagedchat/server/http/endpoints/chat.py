"""`POST /v1/chat/completions`: a conversation answered."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagedchat.server.http.answering import GeneratedAnswer, stream, whole
from pagedchat.server.http.chat_choice import ChoiceTeller
from pagedchat.server.http.conversation import Asked, Conversation
from pagedchat.server.http.endpoints.common import check_model, new_id, now, parameters, ready
from pagedchat.server.http.messages import template_messages
from pagedchat.server.http.reading import BodyReader
from pagedchat.server.http.sampling import chat_logprobs
from pagedchat.server.http.schemas.chat import ChatBody, ChatChoice, ChatChunk, ChatCompletion, ChunkChoice
from pagedchat.server.http.schemas.common import Usage
from pagedchat.server.http.streaming import DONE, event
from pagedchat.server.http.tools import offered
from pagedchat.server.http.without_effect import check_no_effect
from pagedchat.server.served import Served

_READER = BodyReader(ChatBody, "messages")
_encode = msgspec.json.Encoder().encode


async def chat_completions(request: Request) -> Response:
    """Answer one body."""
    served = ready(request)
    body = await _READER.read(request, served.max_body)
    info = check_model(served, body.model)
    check_no_effect(body)
    messages = template_messages(body.messages, info.max_model_len)
    tools = offered(body.tools, body.tool_choice, served.tool_format, body.parallel_tool_calls)
    params, naming = parameters(
        body, served, _READER.naming, tools.form if tools is not None else None,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=chat_logprobs(body.logprobs, body.top_logprobs),
        skip_special_tokens=False if tools is not None and body.skip_special_tokens is None else None,
    )  # fmt: skip
    asked = Asked(
        messages=messages,
        params=params,
        tools=tools,
        template_kwargs=_template_kwargs(body),
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=body.continue_final_message is True,
    )
    answer = _Answer(served, body, asked)
    work = stream(answer.frames) if body.stream else whole(answer.whole)
    return GeneratedAnswer(served.admission, params.best_of or params.n, work, naming)


def _template_kwargs(body: ChatBody) -> dict[str, Any]:
    effort = {} if body.reasoning_effort is None else {"reasoning_effort": body.reasoning_effort}
    return effort | (body.chat_template_kwargs or {})


class _Answer:
    """One body on its way to an answer."""

    def __init__(self, served: Served, body: ChatBody, asked: Asked) -> None:
        self._body = body
        self._model = served.name
        self._conversation = Conversation(served, asked)
        self._id, self._created = new_id("chatcmpl"), now()
        self._tellers: dict[int, ChoiceTeller] = {}
        self._top_logprobs = asked.params.logprobs

    async def whole(self) -> bytes:
        """Everything at once."""
        choices: list[ChatChoice] = []
        async for output in self._conversation.outputs():
            choices += [self._teller(reply.index).whole(reply) for reply in output.outputs]
        tally = self._conversation.tally
        ids = tally.prompt(0) if self._body.return_token_ids else msgspec.UNSET
        completion = ChatCompletion(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=await self._usage(),
            prompt_token_ids=ids,
        )  # fmt: skip
        return _encode(completion)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Piece by piece."""
        options = self._body.stream_options
        has_usage = options is not None and bool(options.include_usage)
        always = has_usage and options is not None and bool(options.continuous_usage_stats)
        ids: list[int] | None = None
        async for output in self._conversation.outputs():
            frames = b""
            for reply in output.outputs:
                for piece in self._teller(reply.index).pieces(reply):
                    told = self._conversation.tally.usage() if always else None if has_usage else msgspec.UNSET
                    if ids is None:
                        ids = self._conversation.tally.prompt(0)
                        frames += event(self._chunk([piece], told, ids if self._body.return_token_ids else None))
                    else:
                        frames += event(self._chunk([piece], told))
            if output.finished:
                frames += event(self._chunk([], await self._usage())) + DONE if has_usage else DONE
            if frames:
                yield frames

    def _teller(self, index: int) -> ChoiceTeller:
        teller = self._tellers.get(index)
        if teller is None:
            teller = self._tellers[index] = ChoiceTeller(
                self._conversation, self._top_logprobs, thoughts=self._body.include_reasoning is not False,
                token_ids=bool(self._body.return_token_ids),
            )  # fmt: skip
        return teller

    async def _usage(self) -> Usage:
        return self._conversation.tally.usage(await self._conversation.num_thought_tokens())

    def _chunk(
        self, choices: list[ChunkChoice], usage: Usage | msgspec.UnsetType | None, ids: list[int] | None = None
    ) -> ChatChunk:
        return ChatChunk(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage,
            prompt_token_ids=msgspec.UNSET if ids is None else ids,
        )  # fmt: skip
