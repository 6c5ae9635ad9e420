"""The figures as tables: our own, the best stored peer of each row, and what ran beside. Measures nothing."""

from collections.abc import Sequence

from pagedchat.bench.engine.client import TEXT
from pagedchat.bench.engine.engines import OURS
from pagedchat.bench.engine.measure_shapes import ShapeFigures
from pagedchat.bench.engine.measures import Figure
from pagedchat.bench.engine.same_tokens import SameTokens
from pagedchat.bench.engine.start import StartFigure
from pagedchat.bench.engine.stored import StoredPeers
from pagedchat.bench.engine.workloads import ROWS, SHAPE_ROWS, Row
from pagedchat.bench.kernels.report import Table

NOTHING = "–"
_HEADER = ("", "unit", "pagedchat", "from – to", "best stored peer", "its figure", "times")


def speed_table(figures: Sequence[Figure], stored: StoredPeers) -> Table:
    """A row for each workload that was run; "times" is how many times as good as a peer ours is.

    Args:
        figures: of all engines.
        stored: what the peers reached on this GPU at another time.
    """
    measured = {(figure.row, figure.engine): figure for figure in figures}
    beside = [name for name in dict.fromkeys(figure.engine for figure in figures) if name != OURS]
    rows = [row for row in ROWS.values() if (row.key, OURS) in measured]
    cells = [
        (
            *_own_cells(row, measured[row.key, OURS]),
            *_stored_cells(row, measured[row.key, OURS], stored),
            *(_beside_cell(row, measured, name) for name in beside),
        )
        for row in rows
    ]
    return _without_empty(Table("Speed", (*_HEADER, *beside), tuple(cells)))


def client_table(figures: Sequence[Figure]) -> Table:
    """A row for each number of chats: ids in one process, text at the client, and which share of the one the other
    is."""
    measured = {(figure.row, figure.engine): figure for figure in figures}
    both = [row for row in ROWS.values() if {(row.key, OURS), (row.key, TEXT)} <= measured.keys()]
    rows = []
    for row in both:
        ids, text = measured[row.key, OURS].value, measured[row.key, TEXT].value
        rows.append((_of_chats(row), row.unit, row.show(ids), row.show(text), f"{row.ratio(text, ids):.0%}"))
    header = ("", "unit", "ids in one process", TEXT, "share")
    return Table("Text at the client of an engine process", header, tuple(rows))


def _of_chats(row: Row) -> str:
    """How many chats, and what of them; the lengths are those of the section."""
    chats, _, what = row.title.partition(",")
    return f"{chats}:{what.rpartition(':')[2]}"


def start_table(figures: Sequence[StartFigure], stored: StoredPeers) -> Table:
    """A row for each way to start, the peers' below ours."""
    rows = [(figure.name, *(_seconds(figure.seconds(what)) for what in _STAGES)) for figure in figures]
    for name, start in stored.start.items():
        values = (start.imports_s, start.ready_s, start.first_token_s)
        rows.append((f"{name} (stored)", *map(_seconds, values)))
    header = ("", "imports, s", "ready, s", "first token, s")
    return Table("Start: seconds from process start", header, tuple(rows))


def shape_table(shape: ShapeFigures, stored: StoredPeers) -> Table:
    """The same for one of the larger shapes, whose weights' reading is in the title."""
    measured = {figure.row: figure for figure in shape.figures}
    of_shape = stored.of_shape(shape.name)
    rows = [row for row in SHAPE_ROWS.values() if row.key in measured]
    cells = tuple(
        (*_own_cells(row, measured[row.key]), *_stored_cells(row, measured[row.key], of_shape)) for row in rows
    )
    size = f"reading {shape.weight_bytes / 1e9:.2f} GB of weights once takes {shape.read_ms:.3f} ms"
    return _without_empty(Table(f"{shape.name}, {shape.dtype}; {size}", _HEADER, cells))


def same_table(comparisons: Sequence[SameTokens]) -> Table:
    """A row for each comparison."""
    rows = tuple(
        (
            same.what,
            "yes" if same.all_same else "no",
            f"{same.num_same} of {same.num_replies}",
            str(same.num_different),
        )
        for same in comparisons
    )
    return Table("Same tokens, float32", ("", "all the same", "replies", "distinct tokens"), rows)


_STAGES = ("imports", "ready", "first")


def _own_cells(row: Row, ours: Figure) -> tuple[str, ...]:
    low, high = row.show(min(ours.runs)), row.show(max(ours.runs))
    return row.title, row.unit, row.show(ours.value), f"{low} – {high}"


def _stored_cells(row: Row, ours: Figure, stored: StoredPeers) -> tuple[str, ...]:
    best = stored.best(row)
    if best is None:
        return "", "", ""
    name, value = best
    return name, row.show(value), f"{row.ratio(ours.value, value):.2f}"


def _beside_cell(row: Row, measured: dict[tuple[str, str], Figure], name: str) -> str:
    figure = measured.get((row.key, name))
    if figure is None:
        return ""
    times = row.ratio(measured[row.key, OURS].value, figure.value)
    return f"{row.show(figure.value)} ({times:.2f})"


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _without_empty(table: Table) -> Table:
    """Columns in which somebody says something, dashes in their gaps."""
    used = [column for column in range(len(table.header)) if any(row[column] for row in table.rows)]
    rows = tuple(tuple(row[column] or NOTHING for column in used) for row in table.rows)
    return Table(table.title, tuple(table.header[column] for column in used), rows)
