"""What loading hands over: all that an engine is built from. Light to import."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import Grammars, ModelRunner
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.events import EngineReady, LoadProgress

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Progress = Callable[[LoadProgress], None]


def nothing_more() -> bool:
    """Nothing is to be prepared."""
    return False


def nothing_wanted() -> None:
    """Nothing is lacking."""


def nothing_lost(tell: Callable[[], None]) -> None:
    """There is nothing that could be."""


def nothing_to_release(drop: Callable[[], None]) -> None:
    """There is nothing to be given back."""
    drop()


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class LoadedModel:
    """All that an engine is built from."""

    runner: ModelRunner
    limits: EngineLimits
    info: EngineReady
    tokenizer: "Tokenizer | None"
    """None with `skip_tokenizer_init`."""
    chat_template: str | None
    """The checkpoint's own, in Jinja; None for a base model."""
    special_tokens: dict[str, str]
    """`{"bos_token": "<s>", ...}`, for the template."""
    sampling_defaults: SamplingParams
    """From the model's generation_config.json."""
    grammars: Grammars | None = None
    """What forms of replies mean for its tokens."""
    notices: tuple[str, ...] = ()
    """What was passed over while loading and should be known, in sentences for people."""
    prepare_more: Callable[[], bool] = nothing_more
    """For times without requests: makes ready one more thing that later ones may use, in a tenth of a second or so,
    and says whether there is another. Not to be called during a step."""
    prepare_wanted: Callable[[], None] = nothing_wanted
    """Makes ready what requests so far lacked, and were served without, whatever that takes: for who measures, say.
    Not to be called during a step."""
    tell_of_loss: Callable[[Callable[[], None]], None] = nothing_lost
    """Calls its argument, in any thread, when the runner is of no use any more without having been asked for a
    batch: a process that has a part of the model is gone, say. The runner's `check` then says why."""
    release: Callable[[Callable[[], None]], None] = nothing_to_release
    """Calls its argument, by which the runner's last owner drops it, and gives back what that frees. No step may be
    asked for meanwhile."""
