"""Jobs shared among threads: each unit once, each job behind the one before, however threads come and go."""

import ctypes
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.ir import I64, PTR, Module
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.pool import Job, Pool, Program
from pagedchat.jit.cpu.target import CpuTarget, host_target


@pytest.fixture(scope="module")
def target() -> CpuTarget:
    found = host_target()
    if isinstance(found, str):
        pytest.skip(f"no CPU kernels, since {found}")
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ObjectCache:
    return ObjectCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def library(target: CpuTarget, cache: ObjectCache) -> Library:
    """`count(numbers)` adds 1 for each unit, `follow(numbers, before)` what stands there in another array."""
    module = Module()
    for name in ("count", "follow"):
        f = module.function(name, [("args", PTR), ("first", I64), ("last", I64)])
        numbers, before = (f.load(PTR, f.at(f.parameter("args"), i, I64), aligned=8) for i in (0, 1))
        with f.loop(f.parameter("first"), f.parameter("last")) as unit:
            at = f.at(numbers, unit, I64)
            more = f.constant(I64, 1) if name == "count" else f.load(I64, f.at(before, unit, I64), aligned=8)
            f.store(f.load(I64, at, aligned=8) + more, at, aligned=8)
        f.finish()
    return Library(str(module), target, cache)


@pytest.fixture(params=[1, 2, 5])
def pool(request: pytest.FixtureRequest, target: CpuTarget, cache: ObjectCache) -> Iterator[Pool]:
    made = Pool(request.param, target, cache)
    yield made
    made.close()


def words(count: int) -> "ctypes.Array[ctypes.c_int64]":
    return (ctypes.c_int64 * count)()


def test_each_unit_is_computed_once_in_each_run(pool: Pool, library: Library) -> None:
    numbers = words(1000)
    program = Program(pool, [Job(library.address("count"), 1000, 7, [ctypes.addressof(numbers)])])
    for run in range(1, 201):
        program.run()
        assert set(numbers) == {run}


def test_job_begins_when_the_one_before_is_done(pool: Pool, library: Library) -> None:
    arrays = [words(300) for _ in range(20)]
    addresses = [ctypes.addressof(each) for each in arrays]
    jobs = [Job(library.address("count"), 300, 3, [addresses[0]])]
    jobs += [Job(library.address("follow"), 300, 5, pair) for pair in zip(addresses[1:], addresses, strict=False)]
    Program(pool, jobs).run()
    assert all(set(each) == {1} for each in arrays)


def test_program_may_be_changed_and_dropped_between_runs(pool: Pool, library: Library) -> None:
    """Workers that come late to a run must take nothing of the next one, nor read what is gone."""
    chance = random.Random(3)
    for _ in range(300):
        sizes = [chance.randrange(1, 60) for _ in range(chance.randrange(1, 8))]
        arrays = [words(80) for _ in sizes]
        jobs = [
            Job(library.address("count"), size, chance.randrange(1, 9), [ctypes.addressof(each)])
            for size, each in zip(sizes, arrays, strict=True)
        ]
        program = Program(pool, jobs)
        program.run()
        for job, size in enumerate(sizes):
            program.set_units(job, size + 20)
        program.run()
        for each, size in zip(arrays, sizes, strict=True):
            assert list(each) == [2] * size + [1] * 20 + [0] * (60 - size)
        if chance.random() < 0.2:
            time.sleep(0.001)  # long enough for workers to sleep


def test_nothing_to_do_is_done(pool: Pool, library: Library) -> None:
    numbers = words(1)
    Program(pool, []).run()
    Program(pool, [Job(library.address("count"), 0, 1, [ctypes.addressof(numbers)])]).run()
    assert list(numbers) == [0]


def test_callers_take_turns(pool: Pool, library: Library) -> None:
    arrays = [words(50) for _ in range(3)]

    def call(numbers: "ctypes.Array[ctypes.c_int64]") -> None:
        program = Program(pool, [Job(library.address("count"), 50, 2, [ctypes.addressof(numbers)])])
        for _ in range(200):
            program.run()

    callers = [threading.Thread(target=call, args=(each,)) for each in arrays]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(set(each) == {200} for each in arrays)


def test_idle_workers_sleep(target: CpuTarget, cache: ObjectCache, library: Library) -> None:
    pool = Pool(3, target, cache)
    Program(pool, [Job(library.address("count"), 1, 1, [ctypes.addressof(words(1))])]).run()
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05
    pool.close()


def test_library_is_compiled_once(tmp_path: Path, target: CpuTarget) -> None:
    module = Module()
    f = module.function("nothing", [("args", PTR)])
    f.finish()
    cache = ObjectCache(tmp_path)
    assert not Library(str(module), target, cache).was_kept
    again = Library(str(module), target, cache)
    assert again.was_kept
    assert again.address("nothing")
    with pytest.raises(KeyError):
        again.address("something")
