"""Figures as tables: one row a shape, ours beside the fastest peer of each kind.

A peer that was not run beside ours is there with its stored figure, if it has one, marked with a star.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagedchat.bench.kernels.decode import FP8, SIXTEEN_BITS
from pagedchat.bench.kernels.figures import OURS, Figure
from pagedchat.bench.kernels.products.experts import GROUPED, IN_FEW_BITS, ONE_BY_ONE
from pagedchat.bench.kernels.products.invariant import CUBLAS
from pagedchat.bench.kernels.products.quantized import PACKED
from pagedchat.bench.kernels.shared_prefix import OWN_BLOCKS, SAME_BLOCKS
from pagedchat.bench.kernels.stored import StoredPeers


@dataclass(frozen=True, slots=True)
class _Peer:
    name: str
    us: float
    star: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Peers of one kind, of which the fastest counts."""

    title: str
    are: Callable[[str], bool]
    """Whether the peer of this name is of the kind."""
    several: bool = False
    """Whether there can be more than one, so that the name has to be told."""

    def fastest(self, peers: Sequence[_Peer]) -> _Peer | None:
        """The fastest one of the kind, or None."""
        return min((peer for peer in peers if self.are(peer.name)), key=lambda peer: peer.us, default=None)


def _named(name: str, title: str = "") -> Rivals:
    return Rivals(title=title or name, are=lambda other: other == name)


_DENSE_CUDNN = _named("torch sdpa dense cudnn", "dense cuDNN")
_ANY = Rivals(title="peer", are=lambda _: True, several=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """How the figures of one section are shown."""

    title: str
    shape: str
    """What the numbers of a shape mean."""
    rivals: tuple[Rivals, ...] = (_ANY,)
    limit: str = "copy"


SECTIONS = {
    "decode": Section(
        title="Decode, `decode_split`",
        shape="batch, heads, KV heads, head size, context",
        rivals=(Rivals(title="best paged", are=lambda name: "dense" not in name, several=True), _DENSE_CUDNN),
    ),
    "bytes": Section(
        title="Decode over a cache of int8, `decode_split`",
        shape="batch, heads, KV heads, head size, context",
        rivals=(_named(SIXTEEN_BITS), _named(FP8)),
    ),
    "bytes in steps": Section(
        title="Decode over a cache of int8, `decode_split` as captured steps launch it",
        shape="batch, heads, KV heads, head size, context",
        rivals=(_named(SIXTEEN_BITS), _named(FP8)),
    ),
    "prefill": Section(
        title="Causal prefill, `paged_prefill`",
        shape="tokens, heads, KV heads, head size",
        rivals=(
            _named("vllm FA2 paged", "FA2 paged"),
            _named("vllm FA3 paged", "FA3 paged"),
            _named("flashinfer FA2 paged", "flashinfer"),
            _DENSE_CUDNN,
        ),
    ),
    "merge": Section(
        title="`merge_attn_states`",
        shape="tokens, heads, head size",
        rivals=(_named("vllm CUDA"), _named("vllm Triton"), _named("torch")),
    ),
    "prefix": Section(
        title="`decode_shared`",
        shape="batch, heads, KV heads, head size, shared, own tokens",
        rivals=(_named(OWN_BLOCKS), _named(SAME_BLOCKS)),
    ),
    "write": Section(title="`reshape_and_cache`", shape="tokens, of a sequence, KV heads, head size"),
    "gather": Section(title="`gather_cached_kv`", shape="tokens, KV heads, head size"),
    "copy": Section(title="`copy_blocks`", shape="blocks, layers, KV heads, head size"),
    "swap out": Section(
        title="`swap_blocks`, to the host", shape="blocks, layers, KV heads, head size", limit="link"
    ),
    "swap in": Section(
        title="`swap_blocks`, from the host", shape="blocks, layers, KV heads, head size", limit="link"
    ),
    "experts": Section(
        title="Both products of a mixture, `expert_linear`",
        shape="tokens, hidden, width, experts, of a token",
        rivals=(*map(_named, IN_FEW_BITS.values()), _named(GROUPED), _named(ONE_BY_ONE)),
    ),
    "invariant": Section(title="`invariant_linear`", shape="rows, inner, outer", rivals=(_named(CUBLAS),)),
    "quantized": Section(
        title="`few_bits_linear`",
        shape="digits, group, rows, inner, outer",
        rivals=(_named(CUBLAS), _named(PACKED)),
    ),
}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text under a title; the first column is the shape."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_text(self) -> str:
        """Aligned columns."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        aligned = (
            "  ".join(
                cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(cells)
            )
            for cells in (zip(line, widths, strict=True) for line in lines)
        )
        return "\n".join([self.title.replace("`", ""), *(f"  {line}".rstrip() for line in aligned)])

    def as_markdown(self) -> str:
        """A table for a README."""
        lines = [self.header, ("---", *("---:" for _ in self.header[1:])), *self.rows]
        return "\n".join([f"{self.title}:", "", *(f"| {' | '.join(line)} |" for line in lines)])


def make_tables(figures: Sequence[Figure], stored: StoredPeers) -> list[Table]:
    """A table for every section that was measured, in the order of `SECTIONS`."""
    measured = {figure.section for figure in figures}
    return [
        _table(section, [figure for figure in figures if figure.section == name], stored)
        for name, section in SECTIONS.items()
        if name in measured
    ]


def _table(section: Section, figures: Sequence[Figure], stored: StoredPeers) -> Table:
    shapes = dict.fromkeys(figure.shape for figure in figures)
    rows = [_row(section, [figure for figure in figures if figure.shape == shape], stored) for shape in shapes]
    used = [column for column in rows[0] if any(row[column] for row in rows)]
    return Table(section.title, tuple(used), tuple(tuple(row[column] or "–" for column in used) for row in rows))


def _row(section: Section, figures: Sequence[Figure], stored: StoredPeers) -> dict[str, str]:
    """Cells by column; empty where there is nothing to say."""
    first = figures[0]
    ours = next((figure for figure in figures if figure.name == OURS), None)
    peers = _peers(figures, stored.at(first.section, first.shape))
    row = {section.shape: first.shape} | _own_cells(section, ours)
    for rivals in section.rivals:
        row |= _rival_cells(rivals, peers, ours)
    return row


def _peers(figures: Sequence[Figure], stored: dict[str, float]) -> list[_Peer]:
    here = [_Peer(figure.name, figure.us) for figure in figures if figure.name != OURS and figure.us is not None]
    names = {peer.name for peer in here}
    return [*here, *(_Peer(name, us, "*") for name, us in stored.items() if name not in names)]


def _own_cells(section: Section, ours: Figure | None) -> dict[str, str]:
    cells = {}
    for title, field, form in _OWN_COLUMNS:
        value = None if ours is None else getattr(ours, field)
        cells[title.format(limit=section.limit)] = "" if value is None else form(value)
    if ours is not None and ours.failed is not None:
        cells["us"] = "failed"
    return cells


def _rival_cells(rivals: Rivals, peers: Sequence[_Peer], ours: Figure | None) -> dict[str, str]:
    fastest = rivals.fastest(peers)
    us, ratio = f"{rivals.title}, us", f"{rivals.title}, x"
    if fastest is None:
        return {us: "", ratio: ""}
    shown = f"{_us(fastest.us)}{fastest.star}"
    return {
        us: f"{fastest.name} {shown}" if rivals.several else shown,
        ratio: "" if ours is None or ours.us is None else f"{fastest.us / ours.us:.2f}",
    }


def _us(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


_OWN_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("us", "us", _us),
    ("GB/s", "gb_s", "{:.0f}".format),
    ("% of {limit}", "percent_of_limit", "{:.0f}".format),
    ("TFLOP/s", "tflop_s", "{:.0f}".format),
    ("host us", "host_us", "{:.1f}".format),
    ("error", "error", "{:.0e}".format),
)
"""Title, field of the figure, how it is written."""
