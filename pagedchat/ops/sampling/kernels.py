"""What the kernels of sampling are compiled for, and how many thread blocks share a row. Loads no torch."""

from pagedchat.jit.kernel_file import KernelFile, Limit, Tuning, Use
from pagedchat.ops.common.choices import ELEMENTS, OVERLAPPING

SHAPES = ((8, 512), (2, 1024), (1, 1024))
"""Thread blocks that share a row, and threads of each: the first pair with which every thread block gets a
multiprocessor for itself, or the last."""

MAX_VOCAB_SIZE = 1 << 22
"""Of a row: sums of probabilities, whole numbers of up to 2^30, stay exact in float64."""

MAX_LIKELY = 64
"""Most likely tokens of a row that `top_logprobs` finds."""

MAX_BEAMS = 32
"""Of a search, in `choose_beams`: one in every lane of a warp."""


def choose_shape(num_rows: int, num_multiprocessors: int, has_clusters: bool) -> tuple[int, int]:
    """One of `SHAPES`.

    Args:
        num_rows: of logits.
        num_multiprocessors: of the GPU.
        has_clusters: whether its thread blocks can work together.
    """
    if has_clusters:
        for cluster, num_threads in SHAPES:
            if num_rows * cluster <= num_multiprocessors:
                return cluster, num_threads
    return SHAPES[-1]


_NO_CLUSTERS = Limit(
    "clusters exist from sm_90 on",
    OVERLAPPING,
    but=True,
    where={"CLUSTER": sorted(cluster for cluster, _ in SHAPES if cluster > 1)},
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
        tuple(Tuning({"CLUSTER": cluster, "NUM_THREADS": threads}) for cluster, threads in reversed(SHAPES)),
        (_NO_CLUSTERS,),
    ),
    KernelFile("row_rules", ("row_rules",), Use.WHERE_ASKED, {"ELEMENT": ELEMENTS}),
    KernelFile("top_logprobs", ("top_logprobs",), Use.WHERE_ASKED, {"ELEMENT": ELEMENTS}),
    KernelFile("choose_beams", ("choose_beams",), Use.WHERE_ASKED, {}),
    KernelFile("token_mask", ("token_mask",), Use.WHERE_ASKED, {}),
)
