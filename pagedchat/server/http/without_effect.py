"""Fields that other servers have and that nothing follows from here: taken where nothing is asked for by them, else
refused with the reason. Knows names alone."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from pagedchat.bounds import shown
from pagedchat.server.http.errors import ApiError


class NoMeaning(NamedTuple):
    """A field that nothing follows from."""

    why: str
    """In a sentence."""
    neutral: tuple[object, ...] = ()
    """Values by which nothing is asked for, besides null."""


_TEXT_ALONE = NoMeaning("Models read and write text, nothing else.")
_NOT_STORED = NoMeaning("Nothing is stored: send the whole conversation.", (False,))
_OLD_FUNCTIONS = NoMeaning("Give functions as tools, which came after them.", ([], "none"))
_NO_CODE = NoMeaning("What changes logits are the parameters that there are: no code of a caller's.", ([],))
_NO_BEAMS = NoMeaning("Beams are had through LLM.beam_search.", (False, 1.0, 1))

TABLE: Mapping[str, NoMeaning] = {
    "suffix": NoMeaning("Text is gone on with, never filled in.", ("",)),
    "priority": NoMeaning("Requests are served first come, first served.", (0,)),
    "use_beam_search": _NO_BEAMS,
    "length_penalty": _NO_BEAMS,
    "logits_processors": _NO_CODE,
    "return_tokens_as_token_ids": NoMeaning("Ask for return_token_ids.", (False,)),
    "cache_salt": NoMeaning("There is one prefix cache for all.", ("",)),
    "kv_transfer_params": NoMeaning("There is one engine.", ({},)),
    "vllm_xargs": NoMeaning("Nobody would read it.", ({},)),
    "mm_processor_kwargs": NoMeaning(_TEXT_ALONE.why, ({},)),
    "prompt_logprobs": NoMeaning("Of completions with echo, logprobs tell those of the prompt.", ()),
    "chat_template": NoMeaning("The model's own template is taken."),
    "documents": NoMeaning("Put them into messages.", ([],)),
    "functions": _OLD_FUNCTIONS,
    "function_call": _OLD_FUNCTIONS,
    "modalities": NoMeaning(_TEXT_ALONE.why, (["text"],)),
    "audio": _TEXT_ALONE,
    "prediction": NoMeaning("Drafts are made from prompt and reply (speculate)."),
    "web_search_options": NoMeaning("There is no web search."),
    "previous_response_id": _NOT_STORED,
    "conversation": _NOT_STORED,
    "background": _NOT_STORED,
    "prompt": NoMeaning("There are no stored prompts: give input."),
    "truncation": NoMeaning("A prompt that is too long is refused.", ("disabled",)),
    "max_tool_calls": NoMeaning("Tools are called by clients."),
    "context_management": _NOT_STORED,
}
"""Of all endpoints; those whose `prompt` or `echo` has a meaning do not ask here."""


def check_no_effect(body: msgspec.Struct, ignored: frozenset[str] = frozenset()) -> None:
    """Let pass what asks for nothing.

    Args:
        body: of a request.
        ignored: fields of the table that this endpoint has a meaning for.

    Raises:
        ApiError: it asks for something that is not there.
    """
    for name, known in _of_type(type(body)):
        value = getattr(body, name)
        if value is None or name in ignored:
            continue
        if not any(type(value) is type(each) and value == each for each in known.neutral):
            raise ApiError(400, f"{name} is {shown(value)}. {known.why}", name, "unsupported_parameter")


@cache
def _of_type(kind: type[msgspec.Struct]) -> list[tuple[str, NoMeaning]]:
    """Of a body's fields those of the table."""
    return [(name, TABLE[name]) for name in kind.__struct_fields__ if name in TABLE]
