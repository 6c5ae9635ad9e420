"""A product of ours beside those of torch at one shape. Knows none of the products."""

from collections.abc import Callable, Mapping, Sequence

from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work
from pagedchat.bench.kernels.products.shapes import ExpertsShape, LinearShape
from pagedchat.bench.kernels.timing import Call


def measure_beside_torch(
    bench: Bench,
    section: str,
    shape: ExpertsShape | LinearShape,
    moved_bytes: int,
    check: Callable[[Sequence[Call]], float],
    ways: Mapping[str, Callable[[], Sequence[Call]]],
) -> list[Figure]:
    """Each way in its turn.

    Args:
        bench: what every section needs.
        section: of the figures.
        shape: of the product.
        moved_bytes: what has to cross the memory.
        check: see `Contender`.
        ways: what prepares the calls of each, by name: `OURS`, and torch's where its figures are wanted.
    """
    work = Work(
        section=section,
        shape=str(shape),
        moved_bytes=moved_bytes,
        limit_gb_s=bench.limits.copy,
        flops=shape.flops,
    )
    wanted = [name for name in ways if name == OURS or "torch" in bench.peers]
    return bench.run(work, [Contender(name=name, prepare=ways[name], check=check) for name in wanted])
