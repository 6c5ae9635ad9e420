"""A pane's border texts: who the chat is and how it stands on top, figures of its last reply below."""

from textual.content import Content

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.events import RequestFinished
from pagedchat.tui.kit.lines import FAINT, MUTED, PLAIN, LinePart, join, spread, text
from pagedchat.view.chats.standing import standing
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.server_words import server_name

_STATES = {
    "idle": ("○", MUTED),
    "queued": ("◦", "$text-warning"),
    "waiting": ("◦", "$text-warning"),
    "running": ("●", "$text-success"),
    "stopped": ("■", MUTED),
    "interrupted": ("□", "$text-error"),
}


def state_sign(session: ChatSession, view: EngineView) -> Content:
    """One character that says how the chat stands."""
    return text(*_STATES[standing(session, view.present).state])


def pane_title(
    session: ChatSession, view: EngineView, limit: int, width: int, *, active: bool, rule: str
) -> Content:
    """The top border's text, filled with the border's own line (of style `rule`) between its two ends."""
    name_style = "bold $text-primary" if active else f"bold {PLAIN}"
    left = join(
        [
            LinePart(0, text(one_line(session.label), name_style)),
            LinePart(0, state_sign(session, view)),
            *_place_parts(view),
            *_branch_parts(session),
            *_sampling_parts(session, view),
        ],
        width,
        " ",
    )
    room = width - left.cell_length - 3
    right = join(_usage_parts(session, view, limit), room, " · ") if room > 8 else Content("")
    if not right.cell_length:
        return left
    return spread(Content.assemble(left, " "), Content.assemble(" ", right), width, "─", rule)


def past_title(session: ChatSession, view: EngineView, width: int) -> Content:
    """The top border's text while the pane shows the chat as it was."""
    parts = [
        LinePart(0, text(one_line(session.label), MUTED)),
        LinePart(0, text(f"as of step {view.step:,}", FAINT)),
    ]
    return join(parts, width)


def _place_parts(view: EngineView) -> list[LinePart]:
    """Where it runs, if not on this machine."""
    return [LinePart(1, text(f"@{server_name(view.server)}", "$text-accent"))] if view.server is not None else []


def _branch_parts(session: ChatSession) -> list[LinePart]:
    place, count = session.branch
    return [LinePart(2, text(f"branch {place}/{count}", MUTED))] if count > 1 else []


def _sampling_parts(session: ChatSession, view: EngineView) -> list[LinePart]:
    temperature = session.overrides.temperature
    if temperature is None and view.info is not None:
        temperature = view.info.sampling_defaults.get("temperature")
    if temperature is None:
        return []
    return [LinePart(3, text("greedy" if temperature == 0 else f"T{temperature:g}", MUTED))]


def _usage_parts(session: ChatSession, view: EngineView, limit: int) -> list[LinePart]:
    if view.server is not None:
        return _counted_parts(session, view, limit)
    sequence = view.mirror.sequences.get(session.session_id) if view.mirror else None
    if sequence is None:
        return []
    used = len(sequence.token_ids)
    own, shared = view.blocks_of(session.session_id)
    full = limit and used >= 0.9 * limit
    blocks = f"{sequence.num_computed} in {own + shared} blk" + (f", {shared} shr" if shared else "")
    parts = [
        LinePart(1, Content.assemble(("ctx ", MUTED), (f"{used}/{limit}", "$text-warning" if full else PLAIN))),
        LinePart(3, text(blocks, PLAIN if shared == 0 else "$text-accent")),
    ]
    if sequence.host_block_table:
        parts.append(LinePart(4, text(f"{len(sequence.host_block_table)} swapped", "$text-warning")))
    rate = view.sequence_rate(session.session_id)
    if rate:
        parts.append(LinePart(2, text(f"{rate:.0f} t/s", "$text-success")))
    return parts


def _counted_parts(session: ChatSession, view: EngineView, limit: int) -> list[LinePart]:
    """By what a server counted with the last reply."""
    done, parts = session.last_finished, []
    if done is not None and done.num_prompt_tokens:
        used = done.num_prompt_tokens + done.num_tokens
        of = f"/{limit}" if limit else ""
        style = "$text-warning" if limit and used >= 0.9 * limit else PLAIN
        parts.append(LinePart(1, Content.assemble(("ctx ", MUTED), (f"{used}{of}", style))))
    if rate := view.sequence_rate(session.session_id):
        parts.append(LinePart(2, text(f"{rate:.0f} t/s", "$text-success")))
    return parts


def pane_footnote(session: ChatSession, view: EngineView, width: int) -> Content:
    """The bottom border's text: why the chat waits, that a reply is searched, or figures of the last one while
    nothing is written.

    Nothing in the past: both are of the present.
    """
    if view.past is not None:
        return Content("")
    if session.progress:
        return join([LinePart(0, text(one_line(session.progress), "$text-warning"))], width)
    stands = standing(session, view.present)
    if stands.why:
        cure = [LinePart(1, text(stands.cure, MUTED))] if stands.cure else []
        return join([LinePart(0, text(stands.words, "$text-warning")), *cure], width, " · ")
    if session.busy and session.beam_width:
        parts = [
            LinePart(0, text(f"beam search, {session.beam_width} wide", "$text-accent")),
            LinePart(1, text("the likeliest so far: its words may change", MUTED)),
        ]
        return join(parts, width, " · ")
    done = session.last_finished
    if session.busy or done is None:
        return Content("")
    parts = [
        LinePart(0, text(f"{done.num_tokens} tok in {done.duration:.1f} s", MUTED)),
        LinePart(1, text(f"first {done.time_to_first_token * 1000:.0f} ms", MUTED)),
        LinePart(2, text(_not_computed(done) if view.server is None else _cached_there(done), MUTED)),
    ]
    return join(parts, width, " · ")


def _not_computed(done: RequestFinished) -> str:
    """Of the prompt: what the chat had still, and what the prefix cache had."""
    kept = done.num_cached_tokens - done.num_found_tokens
    return f"{kept} kept, {done.num_found_tokens} found of {done.num_prompt_tokens}"


def _cached_there(done: RequestFinished) -> str:
    """Of the prompt: what a server says that it had."""
    if not done.num_prompt_tokens:
        return "tokens not told"
    return f"{done.num_cached_tokens} cached there of {done.num_prompt_tokens}"


def rule_style(active: bool) -> str:
    """Colour of the pane's border line, the same as in the style sheet."""
    return "$primary" if active else FAINT
