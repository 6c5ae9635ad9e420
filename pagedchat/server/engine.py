"""What the endpoints ask of an engine, and how that engine is just now. Knows no HTTP and starts nothing."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pagedchat.events import EngineDied, EngineEvent, EngineFailed, EngineReady, IntegrityBroken, LoadProgress

if TYPE_CHECKING:
    from pagedchat.engine.sampling_params import SamplingParams
    from pagedchat.outputs import RequestOutput


class Engine(Protocol):
    """As `AsyncLLM` is. Leaving one of its iterators ends the request and frees its blocks."""

    def generate(
        self, prompt: Any, sampling_params: "SamplingParams", request_id: str | None = None
    ) -> "AsyncGenerator[RequestOutput, None]":
        """Go on with a text, `{"prompt": str}`, or with tokens, `{"prompt_token_ids": [...]}`."""
        ...

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: "SamplingParams",
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        request_id: str | None = None,
    ) -> "AsyncGenerator[RequestOutput, None]":
        """Answer a conversation."""
        ...

    async def tokenize(self, prompt: Any, add_special_tokens: bool = True) -> list[int]:
        """Text, or a conversation through the template, as tokens."""
        ...

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """Tokens as text."""
        ...


class EngineState:
    """Whether there is an engine, folded from its events: hand every one of them to `fold`."""

    def __init__(self) -> None:
        self.info: EngineReady | None = None
        """The engine that takes requests; None while there is none."""
        self.known: EngineReady | None = None
        """The same, kept while another one is started in its place."""
        self._doing = "The engine is starting."

    @property
    def trouble(self) -> str:
        """Why nobody can be served now, in a sentence; empty while there is an engine."""
        return "" if self.info is not None else self._doing

    def fold(self, event: EngineEvent) -> None:
        """Take in the engine's next event."""
        match event:
            case EngineReady():
                self.info = self.known = event
            case LoadProgress(message=message):
                self._doing = f"The model is being loaded: {message.rstrip('.')}."
            case IntegrityBroken(message=message):
                self.info, self._doing = (
                    None,
                    f"The engine's books disagree, so that no reply can be trusted: {message}",
                )
            case EngineFailed(message=message):
                self.info, self._doing = None, f"The engine cannot start: {message}"
            case EngineDied(restarting=restarting):
                self.info = None
                then = "another one is being started" if restarting else "it is not started again"
                self._doing = f"The engine ended unexpectedly; {then}."
