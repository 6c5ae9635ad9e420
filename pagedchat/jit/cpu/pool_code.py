"""The pool's part that is compiled: a table of jobs gone through by all threads, and how workers wait. Knows no
kernel: a job is the address of a function, a number of units and arguments.

A thread takes a chunk of a job's units by one exchange, so whoever is slow or late gets less; it goes on to the
next job when all units are done, not when all threads have come by. So nobody waits for a thread that the system
has put aside, unless it holds units. Counters carry the number of the run, and are closed behind it: a late worker
finds nothing to take, whatever whoever calls has written into the table for the next run. That memory may go when
no worker is inside.

State (bytes; each group on a cache line of its own)::

      0 run       number of the run that is on, or was last          i64
     64 inside    workers that may be reading a table                i64
    128 sleepers  workers that sleep, or are about to                i64 192 stop      not 0: workers go home
    i64 256 table     of the run that is on, else 0                      ptr 320 addresses of sched_yield,
    pthread_mutex_lock, pthread_mutex_unlock, pthread_cond_wait, pthread_cond_broadcast 384 mutex, 512 condition

A table is its number of jobs, an i64 on a line of its own, and the jobs (bytes)::

      0 function  (arguments, first unit, unit behind the last one)  ptr
      8 units, 16 chunk                                              i64
     64 taken     run << 32 | units taken                            i64
    128 done      run << 32 | units done                             i64
    192 arguments                                                    32 words
"""

from pagedchat.jit.cpu.ir import I32, I64, PTR, Function, Module, Value
from pagedchat.jit.cpu.target import CpuTarget

RUN, INSIDE, SLEEPERS, STOP, TABLE, ADDRESSES, MUTEX, CONDITION = 0, 64, 128, 192, 256, 320, 384, 512
STATE_BYTES = 1024
FUNCTION, UNITS, CHUNK, TAKEN, DONE, ARGUMENTS = 0, 8, 16, 64, 128, 192
MAX_ARGUMENTS = 32
JOB_BYTES = ARGUMENTS + 8 * MAX_ARGUMENTS
HEAD_BYTES = 64
"""Of a table, before its first job."""

_CLOSED = -1
"""Counters of a job that is in no run."""

_SPINS_IN_JOB = 2000
"""Pauses between two jobs before a thread offers its core to others each time that it looks."""
_SPINS_IDLE = 1500
"""Pauses, some ten microseconds to a hundred, before a worker without work sleeps."""


def pool_module(target: CpuTarget) -> Module:
    """`run(state, table)`, `leave(state)` and `work(state)`."""
    module = Module()
    _write_go_through(module, target)
    _write_run(module)
    _write_leave(module)
    _write_work(module, target)
    return module


def _write_go_through(module: Module, target: CpuTarget) -> None:
    """All jobs of a table, as one of those that share them."""
    f = module.function("go_through", [("state", PTR), ("table", PTR), ("run", I64)])
    state, table, run = (f.parameter(name) for name in ("state", "table", "run"))
    base = run << 32
    with f.forever() as out:
        with f.loop(0, f.load(I64, table, aligned=8)) as i:
            job = _job(f, table, i)
            taken = f.at(job, TAKEN, "i8")
            with f.forever() as no_more:
                seen = _atomic_load(f, taken)
                f.leave(out, (seen >> 32).differs(run))
                units, chunk = _word(f, job, UNITS), _word(f, job, CHUNK)  # of this run, if `taken` stays as seen
                first = seen - base
                f.leave(no_more, first >= units)
                is_last = (first + chunk) >= units
                count = f.choose(is_last, units - first, chunk, I64)
                pair = f.assign(
                    "{ i64, i1 }",
                    f"cmpxchg ptr {taken.name}, i64 {seen.name}, i64 {(seen + count).name} acq_rel monotonic",
                )
                with f.when(f.assign("i1", f"extractvalue {{ i64, i1 }} {pair.name}, 1")):
                    _compute(f, job, first, first + count)
                    f.change("add", f.at(job, DONE, "i8"), count)
            done, units = f.at(job, DONE, "i8"), _word(f, job, UNITS)
            _wait_for(f, target, state, done, base + units, run, out)
        f.leave(out)
    f.finish()


def _compute(f: Function, job: Value, first: Value, behind: Value) -> None:
    function = f.load(PTR, f.at(job, FUNCTION, "i8"), aligned=8)
    arguments = f.at(job, ARGUMENTS, "i8")
    f.line(f"call void {function.name}(ptr {arguments.name}, i64 {first.name}, i64 {behind.name})")


def _job(f: Function, table: Value, index: Value) -> Value:
    return f.at(table, index * JOB_BYTES + HEAD_BYTES, "i8")


def _wait_for(
    f: Function, target: CpuTarget, state: Value, counter: Value, wanted: Value, run: Value, out: str
) -> None:
    spins = f.variable(I64, 0)
    with f.forever() as reached:
        now = _atomic_load(f, counter)
        f.leave(reached, now.equals(wanted))
        f.leave(out, (now >> 32).differs(run))
        _pause(f, target)
        spins.value = spins.value + 1
        with f.when(spins.value >= _SPINS_IN_JOB):
            _call(f, state, 0)


def _write_run(module: Module) -> None:
    f = module.function("run", [("state", PTR), ("table", PTR)])
    state, table = f.parameter("state"), f.parameter("table")
    run_at, table_at = f.at(state, RUN, "i8"), f.at(state, TABLE, "i8")
    run = (_atomic_load(f, run_at) + 1) & 0x7FFFFFFF
    num_jobs = f.load(I64, table, aligned=8)
    with f.loop(0, num_jobs) as i:
        for counter in (DONE, TAKEN):
            _atomic_store(f, run << 32, f.at(_job(f, table, i), counter, "i8"), "release")
    _atomic_store(f, f.convert("ptrtoint", table, I64), table_at, "release")
    _atomic_store(f, run, run_at, "seq_cst")
    sleepers = f.at(state, SLEEPERS, "i8")
    with f.when(_atomic_load(f, sleepers, "seq_cst").differs(0)):
        _call(f, state, 1, f.at(state, MUTEX, "i8"))
        _call(f, state, 4, f.at(state, CONDITION, "i8"))
        _call(f, state, 2, f.at(state, MUTEX, "i8"))
    f.line(f"call void @go_through(ptr {state.name}, ptr {table.name}, i64 {run.name})")
    _atomic_store(f, f.constant(I64, 0), table_at, "seq_cst")
    with f.loop(0, num_jobs) as i:
        for counter in (TAKEN, DONE):
            _atomic_store(f, f.constant(I64, _CLOSED), f.at(_job(f, table, i), counter, "i8"), "seq_cst")
    f.finish()


def _write_leave(module: Module) -> None:
    """Returns when no worker looks at a table; whoever comes in behind that finds none."""
    f = module.function("leave", [("state", PTR)])
    state = f.parameter("state")
    with f.forever() as alone:
        f.leave(alone, _atomic_load(f, f.at(state, INSIDE, "i8"), "seq_cst").equals(0))
        _call(f, state, 0)
    f.finish()


def _write_work(module: Module, target: CpuTarget) -> None:
    f = module.function("work", [("state", PTR)])
    state = f.parameter("state")
    run_at, stop_at, inside = (f.at(state, where, "i8") for where in (RUN, STOP, INSIDE))
    last = f.variable(I64, 0)
    with f.forever() as home:
        spins = f.variable(I64, 0)
        with f.forever() as called:
            f.leave(home, _atomic_load(f, stop_at).differs(0))
            f.leave(called, _atomic_load(f, run_at).differs(last.value))
            _pause(f, target)
            spins.value = spins.value + 1
            with f.when(spins.value >= _SPINS_IDLE):
                _sleep(f, state, last.value)
                spins.value = 0
        f.change("add", inside, 1)
        run = _atomic_load(f, run_at, "seq_cst")
        table = _atomic_load(f, f.at(state, TABLE, "i8"), "seq_cst")
        with f.when(table.differs(0)):  # if it is the next run's already, its counters say so
            at = f.convert("inttoptr", table, PTR)
            f.line(f"call void @go_through(ptr {state.name}, ptr {at.name}, i64 {run.name})")
        last.value = run
        f.change("sub", inside, 1)
    f.finish()


def _sleep(f: Function, state: Value, last: Value) -> None:
    """Until there is another run than `last`, or all go home."""
    mutex, sleepers = f.at(state, MUTEX, "i8"), f.at(state, SLEEPERS, "i8")
    _call(f, state, 1, mutex)
    f.change("add", sleepers, 1)
    with f.forever() as awake:
        run = _atomic_load(f, f.at(state, RUN, "i8"), "seq_cst")
        f.leave(awake, run.differs(last))
        f.leave(awake, _atomic_load(f, f.at(state, STOP, "i8")).differs(0))
        _call(f, state, 3, f.at(state, CONDITION, "i8"), mutex)
    f.change("sub", sleepers, 1)
    _call(f, state, 2, mutex)


def _call(f: Function, state: Value, which: int, *arguments: Value) -> None:
    """One of the system's functions, whose addresses are in the state."""
    address = f.load(PTR, f.at(state, ADDRESSES + 8 * which, "i8"), aligned=8)
    inside = ", ".join(f"ptr {each.name}" for each in arguments)
    f.assign(I32, f"call i32 {address.name}({inside})")


def _word(f: Function, job: Value, where: int) -> Value:
    return f.load(I64, f.at(job, where, "i8"), aligned=8)


def _atomic_load(f: Function, address: Value, order: str = "acquire") -> Value:
    return f.assign(I64, f"load atomic i64, ptr {address.name} {order}, align 8")


def _atomic_store(f: Function, value: Value, address: Value, order: str) -> None:
    f.line(f"store atomic i64 {value.name}, ptr {address.name} {order}, align 8")


def _pause(f: Function, target: CpuTarget) -> None:
    """A little while, in which another thread of the same core has it."""
    if target.is_x86:
        f.call_for_effect("llvm.x86.sse2.pause", [])
    else:
        f.call_for_effect("llvm.aarch64.hint", [f.constant(I32, 1)])
