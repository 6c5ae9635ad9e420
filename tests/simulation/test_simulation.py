"""Worlds from seeds: storms of a user and of faults, and what must hold after each; 10^5 steps in every run.

`python -m tools.simulate` goes as far as one likes.
"""

import os
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from pagedchat.ops.cache.byte_cache import DTYPES
from tests.simulation.model import FORMATS, kernel_letters
from tests.simulation.world import STEPS, World, form_of, kind_of

NUM_GROUPS = int(os.environ.get("PAGEDCHAT_SIMULATION_GROUPS", "8"))
SEEDS_IN_A_GROUP, STEPS_OF_A_SEED = 5, 2600
HAPPENS = (
    *STEPS, "engines", "lives", "calms", "traces read", "engine steps",
    "requests ended: stop", "requests ended: length", "requests ended: abort",
    "requests of programs finished", "requests of programs left", "requests told of", "searches",
    "requests of programs for the best of several",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("group", range(NUM_GROUPS))
def test_nothing_is_lost_and_nothing_is_wrong(group: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(group * SEEDS_IN_A_GROUP, (group + 1) * SEEDS_IN_A_GROUP):
        seen += World(seed).run(STEPS_OF_A_SEED)
    assert sum(seen[kind] for kind in STEPS) >= SEEDS_IN_A_GROUP * STEPS_OF_A_SEED
    assert {name: seen[name] for name in HAPPENS if not seen[name]} == {}


def test_without_faults_no_engine_dies() -> None:
    seen = World(3, faults=False).run(2000)
    assert seen["engines"] == seen["lives"] == 1
    assert seen["requests failed"] == seen["faults"] == 0


@pytest.mark.parametrize("form", FORMATS)
def test_letters_by_cpu_kernels_are_the_same_alone_and_in_company(form: str) -> None:
    if kernel_letters(form) is None:
        pytest.skip("no CPU kernels")
    seed = next(seed for seed in count() if form_of(seed) == form)
    seen = World(seed).run(1500)
    assert seen[f"worlds by kernels in {form}"] == 1
    assert seen["requests ended: length"] + seen["requests ended: stop"] > 3


@pytest.mark.parametrize("kind", DTYPES)
def test_what_is_read_from_pages_of_bytes_is_what_was_written_wherever_its_block_went(kind: str) -> None:
    seed = next(seed for seed in count() if kind_of(seed) == kind)
    seen = World(seed).run(1500)
    assert seen[f"worlds with pages of {kind}"] == 1
    assert seen["requests ended: length"] + seen["requests ended: stop"] > 3


def test_a_seed_is_the_same_world_in_every_process() -> None:
    script = "from tests.simulation.world import World; w = World(11); w.run(1500); print(w.crc, w.num_steps)"
    root = Path(__file__).parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", script], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
