"""Answers of the commands that only tell something: a chat's settings and context, the engine's totals."""

from typing import Any

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.events import Counters, EngineReady
from pagedchat.units import format_size
from pagedchat.view.chats.standing import standing
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.cache_type import block_bytes_text
from pagedchat.view.sentences.kernels import steps_by
from pagedchat.view.sentences.ranks import rank_lines
from pagedchat.view.state.engine import EngineState

_SYSTEM_CELLS = 60
_SHOWN = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "max_tokens", "seed", "speculate", "logprobs",
)  # fmt: skip


def settings_text(chat: ChatSession, info: EngineReady | None) -> str:
    """Sampling values, those that are set for this chat told from the model's own, and the system prompt."""
    chosen = chat.overrides.set_values()
    defaults = info.sampling_defaults if info is not None else {}
    values = [_setting(name, chosen, defaults) for name in _SHOWN]
    system = one_line(chat.system or "")
    shortened = system if len(system) <= _SYSTEM_CELLS else system[: _SYSTEM_CELLS - 1] + "…"
    return f"{'  '.join(filter(None, values))}\nsystem prompt: {shortened or 'none'}   when full: {chat.when_full}"


def _setting(name: str, chosen: dict[str, Any], defaults: dict[str, Any]) -> str:
    if name in chosen:
        return f"{name} {chosen[name]} (set)"
    return f"{name} {defaults[name]}" if name in defaults else ""


def context_text(chat: ChatSession, view: EngineView, limit: int) -> str:
    """How much of the context a chat fills, and with which blocks."""
    live = view.present
    sequence = live.mirror.sequences.get(chat.session_id)
    if sequence is None:
        return f"{one_line(chat.label)} holds no tokens yet."
    own, shared = live.blocks_of(chat.session_id)
    tokens = len(sequence.token_ids)
    size = format_size((own + shared) * live.info.block_bytes)
    where = f"{len(sequence.host_block_table)} blocks in host memory" if sequence.host_block_table else size
    return (
        f"{tokens} of {limit} tokens ({tokens / limit:.0%}), {sequence.num_computed} of them computed\n"
        f"{own + shared} blocks ({where}): {own} of its own, {shared} shared · {standing(chat, live).words}"
    )


def _precision(info: EngineReady) -> str:
    """Of weights and of what is worked out, with the reason where there is one."""
    kept = f"weights in {one_line(info.quantization)}, {info.dtype}" if info.quantization else info.dtype
    if info.kv_cache_dtype:
        kept += f", cache in {one_line(info.kv_cache_dtype)}"
    return f"{kept} ({one_line(info.precision_reason).rstrip('.')})" if info.precision_reason else kept


def _drafts(totals: Counters) -> list[str]:
    """Of an engine that guesses tokens."""
    if not totals.draft_tokens:
        return []
    rejected = totals.draft_tokens - totals.accepted_tokens
    return [f"{totals.draft_tokens} tokens drafted: {totals.accepted_tokens} accepted, {rejected} rejected"]


def engine_text(live: EngineState) -> str:
    """The engine's totals since it started."""
    info, last = live.info, live.mirror.last
    by = steps_by(info.kernels, info.attention_backend)
    head = f"{one_line(info.model)} · {_precision(info)} on {info.device}, {by}"
    if last is None:
        free = f"Nothing has run yet; {info.num_blocks} blocks of {info.block_size} tokens are free."
        return "\n".join([head, free, *rank_lines(info, None)])
    pool, totals = last.pool, last.counters
    return "\n".join([
        head,
        f"step {live.step} · {live.tokens_per_second:.0f} tok/s · {totals.prefill_tokens} tokens prefilled, "
        f"{totals.decode_tokens} decoded",
        f"prompts: {totals.kept_tokens} tokens kept by their chats · prefix cache: {totals.prefix_hits} of "
        f"{totals.prefix_queries} tokens looked up were found",
        f"blocks: {pool.free} free, {pool.cached} cached, {pool.in_use} in use ({pool.shared} shared), "
        f"{pool.withheld} withheld, {pool.pinned} pinned of {pool.total}",
        f"a block of {info.block_size} tokens takes {block_bytes_text(info)}",
        f"{totals.preemptions} preemptions · {totals.copies} copies on write · {totals.evictions} evictions · "
        f"{totals.swaps_out} blocks swapped out, {totals.swaps_in} in",
        *_drafts(totals),
        *rank_lines(info, last),
    ])  # fmt: skip
