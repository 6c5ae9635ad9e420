"""A CPU kernel that counts, and what runs it. Imports no torch."""

import ctypes

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.ir import I64, PTR, Module
from pagedchat.jit.cpu.library import Library
from pagedchat.jit.cpu.pool import Job, Pool, Program
from pagedchat.jit.cpu.target import CpuTarget


def module_that_counts() -> str:
    """`count(numbers)` adds 1 for each unit."""
    module = Module()
    f = module.function("count", [("args", PTR), ("first", I64), ("last", I64)])
    numbers = f.load(PTR, f.parameter("args"), aligned=8)
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        at = f.at(numbers, unit, I64)
        f.store(f.load(I64, at, aligned=8) + f.constant(I64, 1), at, aligned=8)
    f.finish()
    return str(module)


def program_over(numbers: "ctypes.Array[ctypes.c_int64]", made: Library, pool: Pool) -> Program:
    return Program(pool, [Job(made.address("count"), len(numbers), 3, [ctypes.addressof(numbers)])])


def count_with(made: Library, here: CpuTarget, num_threads: int = 2) -> list[int]:
    pool = Pool(num_threads, here, ObjectCache())
    numbers = (ctypes.c_int64 * 50)()
    program_over(numbers, made, pool).run()
    pool.close()
    return list(numbers)
