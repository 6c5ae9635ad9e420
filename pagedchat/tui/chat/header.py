"""The screen's first line: which model, how full the pool, how fast, at which step."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.chat.sanitize import one_line
from pagedchat.events import EngineReady
from pagedchat.tui.kit.lines import FAINT, MUTED, LinePart, bar, content_to_ascii, text
from pagedchat.tui.kit.sparse_painting import repaint
from pagedchat.units import format_size
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.server_words import header_figures, server_name
from pagedchat.view.sentences.words import model_name
from pagedchat.view.state.invariant import picture_holds
from pagedchat.view.state.server import ServerState

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_BAR_CELLS = 8
_REACHED = {True: "$text-accent", False: "$text-error"}
"""How a server's address is drawn."""
_SEPARATOR, _GAP = text(" │ ", FAINT), Content("  ")
_SEPARATOR_CELLS, _GAP_CELLS = 3, 2
"""Never asked of themselves: Textual 8.2 counts what it has counted once with every line that it joins."""


class HeaderBar(Widget):
    """Draws itself anew only when a figure changed."""

    DEFAULT_CSS = """
    HeaderBar { height: 1; padding: 0 1; background: $surface; }
    """

    def __init__(self, view: EngineView, model: str) -> None:
        super().__init__()
        self.auto_links = False
        self._view = view
        self._model = model
        self._drawn: Content | None = None
        self._width = 0
        """Cells that it was made for."""

    def follow(self, view: EngineView, model: str) -> None:
        """Show this engine from now on, by this name until it says what it found."""
        self._view, self._model = view, model
        self.refresh_view()

    def refresh_view(self) -> None:
        """Take over what changed in the engine."""
        line = self._line()
        if self._drawn is None or not line.is_same(self._drawn):
            repaint(self)
        self._drawn = line

    def render(self) -> Content:
        """The line, cut to the width."""
        if self._drawn is None or self._width != self.content_size.width:
            self._drawn = self._line()
        return self._drawn

    def _line(self) -> Content:
        self._width = self.content_size.width
        line = header_line(self._view, self._model, self._width)
        return content_to_ascii(line) if getattr(self.app, "ascii", False) else line


def header_line(view: EngineView, model: str, width: int) -> Content:
    """The whole header, as much of it as fits."""
    info = view.info
    groups = [
        [
            LinePart(8, text("pagedchat", "bold $text-primary")),
            LinePart(0, text(_called(view, model), "bold")),
        ]
    ]
    if view.attachment is not None:
        groups[0].append(
            LinePart(1, text(f"@ {one_line(view.attachment.where)}", _REACHED[not view.attachment.lost]))
        )
    if view.server is not None:
        groups += _server_parts(view.server)
    elif info is not None:
        groups[0].append(LinePart(3, text(precision_and_device(info), MUTED)))
        if info.kv_cache_dtype:
            groups[0].append(LinePart(6, text(f"{one_line(info.kv_cache_dtype)} cache", MUTED)))
        if info.attention_backend == "cuda":
            groups[0].append(LinePart(6, text("CUDA kernels", MUTED)))
        groups += [_pool_parts(view, info), _speed_parts(view)]
    worst = next((worst for worst in range(8, 0, -1) if _cells(groups, worst) <= width), 0)
    line = _SEPARATOR.join([_joined(group, worst) for group in groups])
    return line if line.cell_length <= width else line.truncate(max(0, width), ellipsis=True)


def _called(view: EngineView, model: str) -> str:
    """The model; where the server is told beside it, without that."""
    if view.server is not None:
        return model_name(view.server.info.model)
    return view.called or model_name(view.info.model if view.info else model)


def _server_parts(server: ServerState) -> list[list[LinePart]]:
    """What a server tells, in place of a pool; and that it tells no more."""
    kind = one_line(server.server.kind)
    where = [LinePart(0, Content.assemble(("at ", MUTED), (server_name(server), "$text-accent")))]
    if kind:
        where.append(LinePart(6, text(kind, MUTED)))
    told = [LinePart(3, text(words)) for words in header_figures(server)] or [
        LinePart(5, text("no figures", FAINT))
    ]
    speed = LinePart(2, Content.assemble(f"{server.tokens_per_second:.0f}", (" tok/s", MUTED)))
    return [[*where, *told], [speed, LinePart(4, text("blocks not told", FAINT))]]


def precision_and_device(info: EngineReady) -> str:
    """In what the weights are kept and where: `int8 CPU, 2 threads`."""
    return f"{one_line(info.quantization) or _DTYPES.get(info.dtype, info.dtype)} {info.device}"


def _cells(groups: list[list[LinePart]], worst: int) -> int:
    """How long the line would be, which is found sooner than the line is made."""
    shown = [[part.content.cell_length for part in group if part.rank <= worst] for group in groups]
    between = sum(max(0, len(cells) - 1) for cells in shown) * _GAP_CELLS
    return sum(map(sum, shown)) + between + (len(groups) - 1) * _SEPARATOR_CELLS


def _joined(group: list[LinePart], worst: int) -> Content:
    return _GAP.join([part.content for part in group if part.rank <= worst])


def _pool_parts(view: EngineView, info: EngineReady) -> list[LinePart]:
    pool = view.shown.pool
    used = pool.usage
    saved = (pool.table_entries - pool.in_use) * info.block_bytes
    color = "$text-error" if used > 0.95 else "$text-warning" if used > 0.8 else "$text-success"
    parts = [
        LinePart(0, Content.assemble(("free ", MUTED), f"{pool.free}/{pool.usable}")),
        LinePart(4, Content.assemble(("[", FAINT), bar(used, _BAR_CELLS, color), (f"]{used:.0%}", MUTED))),
    ]
    if pool.cached:
        parts.append(LinePart(6, Content.assemble(("cached ", MUTED), f"{pool.cached}")))
    parts.append(LinePart(5, Content.assemble(("shared ", MUTED), f"{pool.shared}")))
    if saved > 0:
        parts.append(LinePart(7, text(f"saves {format_size(saved)}", "$text-accent")))
    return parts


def _speed_parts(view: EngineView) -> list[LinePart]:
    pool = view.shown.pool
    then = pool.usable if pool.withheld else None
    limit = view.limit if view.past is None else then
    return [
        LinePart(2, Content.assemble(f"{view.tokens_per_second:.0f}", (" tok/s", MUTED))),
        LinePart(5, Content.assemble(("batch ", MUTED), f"{view.last_batch}")),
        _step_part(view),
        *([LinePart(1, text(f"limit {limit}", "$text-warning"))] if limit is not None else []),
        LinePart(0, Content.assemble(_run_sign(view), " ", _light(view))),
    ]


def _step_part(view: EngineView) -> LinePart:
    """The step, and that it lies in the past."""
    if view.past is None or view.live is None:
        return LinePart(6, Content.assemble(("step ", MUTED), f"{view.step}"))
    return LinePart(0, text(f"◄ step {view.past.step} of {view.live.step}", "bold $text-warning"))


def _run_sign(view: EngineView) -> Content:
    if view.paused:
        return text("║ paused", "bold $text-warning")
    if view.pace > 0:
        return text(f"► {1 / view.pace:.3g}/s", "$text-warning")
    return text("►", "$text-success")


def _light(view: EngineView) -> Content:
    """Green while the engine's own check holds and the screen's counts are the engine's."""
    holds = view.broken is None and picture_holds(view)
    return text("√", "$text-success") if holds else text("‼", "bold $text-error")
