"""The header's figures as one line: which model, how full the pool, how fast, at which step."""

from textual.content import Content

from pagedchat.chat.sanitize import one_line
from pagedchat.events import EngineReady
from pagedchat.tui.kit.lines import FAINT, MUTED, Part, bar, text
from pagedchat.units import format_size
from pagedchat.view.engine_view import EngineView
from pagedchat.view.state.invariant import picture_holds

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_BAR_CELLS = 8
_SEPARATOR = text(" │ ", FAINT)


def header_line(view: EngineView, model: str, width: int) -> Content:
    """The whole header, as much of it as fits."""
    info = view.info
    groups = [
        [
            Part(8, text("pagedchat", "bold $text-primary")),
            Part(0, text(model_name(info.model if info else model), "bold")),
        ]
    ]
    if info is not None:
        groups[0].append(Part(6, text(f"{_DTYPES.get(info.dtype, info.dtype)} {info.device}", MUTED)))
        if info.attention_backend == "cuda":
            groups[0].append(Part(7, text("CUDA kernels", MUTED)))
        groups += [_pool_parts(view, info), _speed_parts(view)]
    for worst in (8, 7, 6, 5, 4, 3, 2, 1, 0):
        line = _SEPARATOR.join([_joined(group, worst) for group in groups])
        if line.cell_length <= width:
            return line
    return line.truncate(max(0, width), ellipsis=True)


def _joined(group: list[Part], worst: int) -> Content:
    return Content("  ").join([part.content for part in group if part.rank <= worst])


def model_name(model: str) -> str:
    """The last part of a hub id or of a folder's path."""
    return one_line(model.rstrip("/\\").replace("\\", "/").rpartition("/")[2]) or "model"


def _pool_parts(view: EngineView, info: EngineReady) -> list[Part]:
    pool = view.shown.pool
    used = pool.in_use / pool.total if pool.total else 0.0
    saved = (pool.table_entries - pool.in_use) * info.block_bytes
    color = "$text-error" if used > 0.95 else "$text-warning" if used > 0.8 else "$text-success"
    parts = [
        Part(0, Content.assemble(("free ", MUTED), f"{pool.free}/{pool.total}")),
        Part(3, Content.assemble(("▕", FAINT), bar(used, _BAR_CELLS, color), (f"▏{used:.0%}", MUTED))),
    ]
    if pool.cached:
        parts.append(Part(5, Content.assemble(("cached ", MUTED), f"{pool.cached}")))
    saves = f" saves {format_size(saved)}" if saved > 0 else ""
    parts.append(Part(4, Content.assemble(("shared ", MUTED), f"{pool.shared}", (saves, "$text-accent"))))
    return parts


def _speed_parts(view: EngineView) -> list[Part]:
    return [
        Part(2, Content.assemble(f"{view.tokens_per_second:.0f}", (" tok/s", MUTED))),
        Part(4, Content.assemble(("batch ", MUTED), f"{view.last_batch}")),
        _step_part(view),
        *([Part(1, text(f"limit {view.limit}", "$text-warning"))] if view.limit is not None else []),
        Part(0, Content.assemble(_run_sign(view), " ", _light(view))),
    ]


def _step_part(view: EngineView) -> Part:
    """The step, and that it lies in the past."""
    if view.past is None or view.live is None:
        return Part(5, Content.assemble(("step ", MUTED), f"{view.step}"))
    return Part(0, text(f"◀ step {view.past.step} of {view.live.step}", "bold $text-warning"))


def _run_sign(view: EngineView) -> Content:
    if view.paused:
        return text("‖ paused", "bold $text-warning")
    if view.pace > 0:
        return text(f"▶ {1 / view.pace:.3g}/s", "$text-warning")
    return text("▶", "$text-success")


def _light(view: EngineView) -> Content:
    """Green while the engine's own check holds and the screen's counts are the engine's."""
    holds = view.broken is None and picture_holds(view)
    return text("✓", "$text-success") if holds else text("✗", "bold $text-error")
