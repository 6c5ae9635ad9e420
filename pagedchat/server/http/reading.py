"""Bodies as they come, and what is wrong with one in the words of OpenAI's errors.

Knows sizes and types; what the fields mean is checked by whoever takes them.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from pagedchat.bounds import shown
from pagedchat.server.http.errors import ApiError, Naming
from pagedchat.units import format_size

T = TypeVar("T", bound=msgspec.Struct)

_PATIENCE = 8
"""So many times the largest body are read and dropped, so that a client is told rather than cut off."""
_AT = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`\Z")
_FIELD = re.compile(r"field `([^`]*)`")


class BodyReader(Generic[T]):
    """Reads the bodies of one endpoint.

    Args:
        kind: of a body.
        prompt: its field that holds what is to be answered.
        renamed: what the engine calls otherwise.
    """

    def __init__(self, kind: type[T], prompt: str, renamed: Mapping[str, str] | None = None) -> None:
        self.naming = Naming(frozenset(kind.__struct_fields__), prompt, renamed or {})
        self._decoder = msgspec.json.Decoder(kind)

    async def read(self, request: Request, most: int) -> T:
        """The body, of at most so many bytes.

        Raises:
            ApiError: it is too large, no JSON, or not what it must be; names the field.
            ClientDisconnect: there is nobody to tell.
        """
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise ApiError(415, f"The body is {shown(kind)}. Send JSON, as Content-Type: application/json.")
        body = await self._whole(request, most)
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise self._wrong(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = str(error).removeprefix("JSON is malformed: ")
            raise ApiError(400, f"The body is not valid JSON: {what}.", code="invalid_json") from None
        except RecursionError:
            raise ApiError(400, "The body is nested too deeply.", code="invalid_json") from None

    async def _whole(self, request: Request, most: int) -> bytes:
        pieces: list[bytes] = []
        size, more = 0, True
        while more and size <= _PATIENCE * most:
            received = await request.receive()
            if received["type"] == "http.disconnect":
                raise ClientDisconnect
            piece, more = received.get("body", b""), received.get("more_body", False)
            size += len(piece)
            if size <= most:
                pieces.append(piece)
        if size > most:
            message = f"The body has more than {format_size(most)}, which is the most that is read."
            raise ApiError(413, message, self.naming.prompt, "request_too_large")
        return b"".join(pieces)

    def _wrong(self, said: str) -> ApiError:
        """`said` by msgspec, as `Expected int, got str - at $.messages[0].content`."""
        at = _AT.search(said)
        place = at[1] if at else ""
        what = said[: at.start()] if at else said
        field = _FIELD.search(what)
        if field is None:
            return ApiError(400, f"{place or 'The body'}: {_lower(what)}.", place or None, "invalid_type")
        name = f"{place}.{field[1]}" if place else field[1]
        if "missing" in what:
            return ApiError(400, f"{name} is missing.", name, "missing_required_parameter")
        near = get_close_matches(field[1], self.naming.fields, 1, 0.7) if not place else []
        question = f" Did you mean {near[0]}?" if near else ""
        return ApiError(400, f"There is no parameter {shown(name)}.{question}", name, "unknown_parameter")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


__all__ = ["BodyReader", "ClientDisconnect"]
