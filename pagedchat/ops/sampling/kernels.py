"""What the kernels of sampling are compiled for, and how many thread blocks share a row. Loads no torch."""

from pagedchat.jit.kernel_file import KernelFile, Limit, Tuning, Use
from pagedchat.ops.common.choices import ELEMENTS, OVERLAPPING

SHAPES = ((8, 512), (2, 1024), (1, 1024))
"""Thread blocks that share a row of `sample`, and threads of each: see `choose_shape`."""

LISTED_SHAPE = (1, 512)
"""The same where a row is a list of few tokens (`ops.screening.screened_draw`)."""

LIKELY_SHAPES = ((8, 128), (1, 1024))
"""The same of `top_logprobs` and `choose_beams`: as many threads a row in both, each with the same part of it. So
sums are the same to the bit in any company."""

MAX_VOCAB_SIZE = 1 << 22
"""Of a row: sums of probabilities, whole numbers of up to 2^30, stay exact in float64."""

MAX_LIKELY = 64
"""Most likely tokens of a row that `top_logprobs` finds."""

MAX_BEAMS = 32
"""Of a search, in `choose_beams`: one in every lane of a warp."""


def choose_shape(
    num_rows: int,
    num_multiprocessors: int,
    has_clusters: bool,
    shapes: tuple[tuple[int, int], ...] = SHAPES,
) -> tuple[int, int]:
    """The first of the shapes with which every thread block gets a multiprocessor for itself, or the last.

    Args:
        num_rows: of logits.
        num_multiprocessors: of the GPU.
        has_clusters: whether its thread blocks can work together.
        shapes: thread blocks of a row and threads of each, the last one for any number of rows and any GPU.
    """
    if has_clusters:
        for cluster, num_threads in shapes:
            if num_rows * cluster <= num_multiprocessors:
                return cluster, num_threads
    return shapes[-1]


def _tunings(shapes: tuple[tuple[int, int], ...]) -> tuple[Tuning, ...]:
    return tuple(Tuning({"CLUSTER": cluster, "NUM_THREADS": threads}) for cluster, threads in reversed(shapes))


_NO_CLUSTERS = Limit(
    "clusters exist from sm_90 on",
    OVERLAPPING,
    but=True,
    where={"CLUSTER": sorted({cluster for cluster, _ in SHAPES + LIKELY_SHAPES if cluster > 1})},
)

KERNELS = (
    KernelFile(
        "decode_state",
        ("find_slots", "argmax_rows", "most_likely_tokens"),
        Use.CAPTURED_STEPS,
        {"ELEMENT": ELEMENTS},
    ),
    KernelFile(
        "sample",
        ("sample",),
        Use.ANY_MODEL,
        {"ELEMENT": ELEMENTS},
        _tunings(SHAPES),
        (_NO_CLUSTERS,),
    ),
    KernelFile(
        "sample_listed",
        ("sample_listed",),
        Use.CAPTURED_STEPS,
        {"ELEMENT": ("float32",)},
        _tunings((LISTED_SHAPE,)),
    ),
    KernelFile("row_rules", ("row_rules",), Use.WHERE_ASKED, {"ELEMENT": ELEMENTS}),
    *(
        KernelFile(stem, (stem,), Use.WHERE_ASKED, {"ELEMENT": ELEMENTS}, _tunings(LIKELY_SHAPES), (_NO_CLUSTERS,))
        for stem in ("top_logprobs", "choose_beams")
    ),
    KernelFile("token_mask", ("token_mask",), Use.WHERE_ASKED, {}),
)
