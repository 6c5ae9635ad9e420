"""A draft model, loaded beside the model that it drafts for.

What can be said against it is said before any weights are read: that it is none, that it reads other tokens, that
it is the larger one of both, that there is no memory for both. Then the pool is sized with its share of every
block, the model is loaded, and after it the draft model, by the same steps, with a cache of as many blocks. Of
several ranks the first one has it, whole: the others hear of drafts as of any rows.

Knows configs, descriptions and bytes; how a model is loaded is for `assemble` to know.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from pagedchat.config import EngineConfig, SpeculationConfig
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.events import LoadProgress
from pagedchat.models.tokenizer import LoadedTokenizer
from pagedchat.runtime.loading.loaded import LoadedModel, Progress
from pagedchat.runtime.loading.model_facts import ModelFacts
from pagedchat.runtime.loading.pool_size import Beside
from pagedchat.runtime.loading.room import refuse_without_room, weight_bytes
from pagedchat.runtime.step.model_runner import TorchModelRunner
from pagedchat.runtime.step.sizes import StepSizes

OPTION = "--speculate"
_T = TypeVar("_T")


def draft_config(config: EngineConfig) -> EngineConfig:
    """How the draft model of `config` is loaded, but for the number of its blocks."""
    assert config.speculation.model is not None  # noqa: S101 - whoever calls has looked
    return replace(
        config,
        model=replace(
            config.model,
            model=config.speculation.model,
            tokenizer=None,
            max_model_len=None,
            batch_invariant=False,
            tensor_parallel_size=1,  # it is whole, beside the first part of the model
        ),
        cache=replace(config.cache, kv_cache_memory=None, gpu_memory_utilization=1.0, swap_space=0),
        scheduler=replace(config.scheduler, preemption_mode="recompute"),
        speculation=SpeculationConfig(),
        stands_beside=False,
    )


def named(find: Callable[[], _T]) -> _T:
    """What `find` returns; what it raises says that it is about the draft model."""
    try:
        return find()
    except PagedChatError as error:
        raise type(error)(f"{OPTION}: {error.message}", error.hint) from error


def refuse_draft(draft: ModelFacts, model: ModelFacts) -> None:
    """Say why this one cannot draft for that one.

    Raises:
        InvalidValueError: its vocabulary is another one, or it is the larger one.
    """
    of_draft, of_model = draft.description, model.description
    if of_draft.vocab_size != of_model.vocab_size:
        raise InvalidValueError(
            f"{OPTION}: {of_draft.name} has {of_draft.vocab_size:,} tokens, and {of_model.name} "
            f"{of_model.vocab_size:,}.",
            "A draft model has the same vocabulary: choose a smaller model of the same family.",
        )
    if draft.tokenizer is not None and model.tokenizer is not None:
        _refuse_tokens(draft.tokenizer, model.tokenizer, of_draft.name, of_model.name)
    sizes = [each.num_parameters for each in (draft, model)]
    if 0 < sizes[1] < sizes[0]:
        raise InvalidValueError(
            f"{OPTION}: {of_draft.name} has {sizes[0]:,} parameters, and {of_model.name} "
            f"{sizes[1]:,}: it is the larger one.",
            "A draft model is worth its time where it is many times smaller.",
        )


def _refuse_tokens(draft: LoadedTokenizer, model: LoadedTokenizer, draft_name: str, name: str) -> None:
    of_draft, of_model = draft.tokenizer.get_vocab(), model.tokenizer.get_vocab()
    if of_draft == of_model:
        return
    differing = sum(of_draft.get(text) != token_id for text, token_id in of_model.items())
    raise InvalidValueError(
        f"{OPTION}: {max(1, differing):,} tokens mean something else to {draft_name} than to {name}.",
        "A draft model has the same vocabulary: choose a smaller model of the same family.",
    )


def beside(draft: ModelFacts, free: int, gpu: int) -> Beside:
    """What the draft model takes, for who sizes the pool.

    Args:
        draft: is loaded later.
        free: bytes where it is to run.
        gpu: of all its memory, if that is a GPU.

    Raises:
        DeviceError: that is more than is free.
    """
    weights = weight_bytes(draft.description, draft.precision)
    named(lambda: refuse_without_room(draft.description.name, weights, draft.shape, free, gpu))
    return Beside(weights, draft.shape.block_bytes, gpu)


def with_draft(
    loaded: LoadedModel,
    config: EngineConfig,
    sizes: StepSizes,
    progress: Progress,
    load: Callable[[EngineConfig, Progress], LoadedModel],
) -> LoadedModel:
    """The model, with the draft model of `config` beside it.

    Args:
        loaded: the model.
        config: of both.
        sizes: of the model's steps.
        progress: is told how it goes.
        load: loads a model.
    """
    of_draft = draft_config(config)
    of_draft = replace(
        of_draft,
        model=replace(of_draft.model, skip_tokenizer_init=True),  # it was read, and thrown away
        cache=replace(of_draft.cache, num_blocks=loaded.limits.num_blocks),
        scheduler=replace(of_draft.scheduler, max_num_batched_tokens=sizes.num_tokens),
    )
    draft = named(lambda: load(of_draft, lambda told: progress(_of_draft(told))))
    notices = list(loaded.notices)
    if draft.info.attention_backend == "cuda" and isinstance(draft.runner, TorchModelRunner):
        notices.append("Steps of the draft model are not captured in CUDA graphs, and take longer.")
    more, more_of_draft = loaded.prepare_more, draft.prepare_more  # and neither runner, which somebody lets go of
    wanted, wanted_of_draft = loaded.prepare_wanted, draft.prepare_wanted

    def prepare_wanted() -> None:
        wanted()
        wanted_of_draft()

    num_ranks = config.model.tensor_parallel_size  # who share the model's work, and none of the draft model's
    share = num_ranks * draft.info.num_parameters / max(1, loaded.info.num_parameters)
    return replace(
        loaded,
        draft=DraftRunner(draft.runner, draft.limits.model_len, share),
        info=msgspec.structs.replace(
            loaded.info,
            draft_model=draft.info.model,
            draft_block_bytes=draft.info.block_bytes,
            load_seconds=loaded.info.load_seconds + draft.info.load_seconds,
        ),
        notices=tuple(notices),
        prepare_more=lambda: more() or more_of_draft(),
        prepare_wanted=prepare_wanted,
    )


def _of_draft(told: LoadProgress) -> LoadProgress:
    message = told.message[:1].lower() + told.message[1:]
    return LoadProgress(told.stage, f"Draft model: {message}", told.done, told.total, told.unit)
