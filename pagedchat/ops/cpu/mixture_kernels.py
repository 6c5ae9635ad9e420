"""The kernels of a mixture of experts with weights of few bits, for all rows of a step at once: who has which
expert, its rows side by side, their products, and the sum of what a row gets from its experts. Of all that is
between these, `rows` has the kernels. A row's numbers follow from the row alone.

A pair is a row and one of its experts; its number is `row * per_token + slot`. Pairs are brought into the order of
experts, each of which then has a run of them: experts, first places and lengths of runs are `runs`, int64
[most runs, 3], of which those that are left over have no pairs.

`route_rows`: logits (float32), elements from a row to the next, num_experts, per_token, 1 if the weights of a row
sum to one, experts (int64 [num_rows, per_token]), weights (float32, likewise). A unit is a row.

`group_pairs`: experts (int64 [num_pairs]), num_pairs, num_experts, per_token, room for an int64 of each expert,
runs, most runs, places of pairs (int64 [num_pairs]), rows of places (int64 [num_pairs]). There is one unit.

`gather_rows`: inputs of products as "int8" in `rows` has them (numbers, scales, sums), the same of places, rows of
places, width, groups of a row. A unit is a place.

`experts_int8` and so on: the arguments of the product, but for these: the addresses of all experts' weights (int64
[num_experts]) and, likewise, of their scales and minimums; biases of all (float32 [num_experts, out_features]) or
0; runs in the place of num_rows; and behind all the units of a product. A unit is one of a run.

`sum_experts`: products of places (float32 [num_pairs, width]), places of pairs, weights, per_token, width, output,
elements from a row of it to the next, 1 to add to what the output holds, what all rows get besides (float32
[num_rows, width]) or 0, logits of the sigmoid that this is multiplied by (float32 [num_rows]) or 0. A unit is a
part of a row.
"""

from pagedchat.jit.cpu.ir import FLOAT, I8, I32, I64, PTR, Function, Module, Value, vector
from pagedchat.ops.cpu.dense_elements import argument
from pagedchat.ops.cpu.vectors import FLOATS, LANES, at_most, exponential, load_lanes, store_lanes

RUN_WORDS = 3
COLUMNS_OF_SUM = 256
"""Of a unit of `sum_experts`."""

_LOWEST = -3.4e38
_ARGUMENTS = 16
"""Of a product."""
_BYTES = vector(16, I8)


def write_mixture(module: Module) -> None:
    """All but the products."""
    _write_routes(module)
    _write_groups(module)
    _write_gathering(module)
    _write_sum(module)


def write_expert_products(module: Module, name: str) -> None:
    """The products of all runs, in the module that has the kernel of this name."""
    f = module.function(f"experts_{name}", [("args", PTR), ("first", I64), ("last", I64)])
    args, last = f.parameter("args"), f.parameter("last")
    runs, of_run = argument(f, args, 6, PTR), argument(f, args, _ARGUMENTS)
    own = f.buffer(I64, _ARGUMENTS)
    for index in (4, 5, 7, 8, 9, 14, 15):
        f.store(argument(f, args, index), f.at(own, index, I64), aligned=8)
    unit = f.variable(I64, f.parameter("first"))
    with f.forever() as done:
        f.leave(done, unit.value >= last)
        first = unit.value % of_run
        stop = at_most(f, of_run, first + (last - unit.value))
        run = f.at(runs, unit.value // of_run * RUN_WORDS, I64)
        num_rows = _word(f, run, 2)
        with f.when(num_rows.differs(0)):
            _own_arguments(f, args, own, _word(f, run, 0), _word(f, run, 1), num_rows)
            f.line(f"call void @{name}(ptr {own.name}, i64 {first.name}, i64 {stop.name})")
        unit.value = unit.value + (stop - first)
    f.finish()


def _own_arguments(f: Function, args: Value, own: Value, expert: Value, place: Value, num_rows: Value) -> None:
    """Those of one expert's product, for rows from a place on."""

    def keep(index: int, word: Value) -> None:
        f.store(word, f.at(own, index, I64), aligned=8)

    def of_table(index: int) -> None:
        table, found = argument(f, args, index), f.variable(I64, 0)
        with f.when(table.differs(0)):
            found.value = _word(f, f.convert("inttoptr", table, PTR), expert)
        keep(index, found.value)

    out_features, stride, group = argument(f, args, 4), argument(f, args, 8), argument(f, args, 14)
    groups = argument(f, args, 5) // group
    for index in (0, 10, 11):
        of_table(index)
    biases = argument(f, args, 3)
    keep(3, f.choose(biases.differs(0), biases + expert * out_features * 4, 0, I64))
    keep(1, argument(f, args, 1) + place * argument(f, args, 7))
    keep(2, argument(f, args, 2) + place * stride * 4)
    keep(6, num_rows)
    keep(12, argument(f, args, 12) + place * groups * 4)
    keep(13, argument(f, args, 13) + place * groups * 4)


def _write_routes(module: Module) -> None:
    f = module.function("route_rows", [("args", PTR), ("first", I64), ("last", I64)])
    args = f.parameter("args")
    logits, stride = argument(f, args, 0, PTR), argument(f, args, 1)
    num_experts, per_token, sums_to_one = (argument(f, args, i) for i in (2, 3, 4))
    experts, weights = argument(f, args, 5, PTR), argument(f, args, 6, PTR)
    with f.loop(f.parameter("first"), f.parameter("last")) as row:
        its_logits = f.at(logits, row * stride, FLOAT)
        its_weights = f.at(weights, row * per_token, FLOAT)
        largest = _choose_largest(f, its_logits, num_experts, per_token, f.at(experts, row * per_token, I64),
                                  its_weights)  # fmt: skip
        chosen = _exponentials(f, its_weights, per_token, largest, keep=True)
        total = f.variable(FLOAT, chosen)
        with f.when(sums_to_one.equals(0)):
            total.value = _exponentials(f, its_logits, num_experts, largest, keep=False)
        with f.loop(0, per_token) as slot:
            at = f.at(its_weights, slot, FLOAT)
            f.store(f.load(FLOAT, at, aligned=4) / total.value, at, aligned=4)
    f.finish()


def _choose_largest(
    f: Function, logits: Value, num_experts: Value, per_token: Value, experts: Value, kept: Value
) -> Value:
    """So many experts and their logits, the largest first, of equal ones the first; returns the largest logit. What
    is no number is passed over."""
    last, last_at = f.variable(FLOAT, float("inf")), f.variable(I64, -1)
    with f.loop(0, per_token) as slot:
        best, best_at = f.variable(FLOAT, _LOWEST), f.variable(I64, 0)
        with f.loop(0, num_experts) as expert:
            logit = f.load(FLOAT, f.at(logits, expert, FLOAT), aligned=4)
            is_later = logit.equals(last.value) & (last_at.value < expert)
            is_left = (logit < last.value) | is_later
            with f.when(is_left & (best.value < logit)):
                best.value, best_at.value = logit, expert
        last.value, last_at.value = best.value, best_at.value
        f.store(best.value, f.at(kept, slot, FLOAT), aligned=4)
        f.store(best_at.value, f.at(experts, slot, I64), aligned=8)
    return f.load(FLOAT, kept, aligned=4)


def _exponentials(f: Function, logits: Value, count: Value, largest: Value, *, keep: bool) -> Value:
    """The sum of exponentials of what logits are below the largest; they take their places if they are kept."""
    total = f.variable(FLOATS, 0.0)
    with f.loop(0, count, LANES) as start:
        mask = f.first_lanes(count - start, LANES)
        at = f.at(logits, start, FLOAT)
        each = exponential(f, load_lanes(f, at, mask) - f.splat(largest, LANES))
        if keep:
            store_lanes(f, each, at, mask)
        total.value = total.value + f.choose(mask, each, 0.0, FLOATS)
    return f.folded(total.value, LANES)


def _write_groups(module: Module) -> None:
    f = module.function("group_pairs", [("args", PTR), ("first", I64), ("last", I64)])
    args = f.parameter("args")
    experts, counts, runs, places, rows = (argument(f, args, i, PTR) for i in (0, 4, 5, 7, 8))
    num_pairs, num_experts, per_token, most_runs = (argument(f, args, i) for i in (1, 2, 3, 6))
    zero = f.constant(I64, 0)
    with f.loop(0, num_experts) as expert:
        f.store(zero, f.at(counts, expert, I64), aligned=8)
    with f.loop(0, num_pairs) as pair:
        count = f.at(counts, _word(f, experts, pair), I64)
        f.store(f.load(I64, count, aligned=8) + 1, count, aligned=8)
    num_runs, place = f.variable(I64, 0), f.variable(I64, 0)
    with f.loop(0, num_experts) as expert:
        at = f.at(counts, expert, I64)
        count = f.load(I64, at, aligned=8)
        f.store(place.value, at, aligned=8)  # from now on where the next of its pairs goes
        with f.when(count.differs(0)):
            _keep_run(f, runs, num_runs.value, (expert, place.value, count))
            num_runs.value = num_runs.value + 1
            place.value = place.value + count
    with f.loop(num_runs.value, most_runs) as run:
        _keep_run(f, runs, run, (zero, zero, zero))
    with f.loop(0, num_pairs) as pair:
        at = f.at(counts, _word(f, experts, pair), I64)
        its_place = f.load(I64, at, aligned=8)
        f.store(its_place + 1, at, aligned=8)
        f.store(its_place, f.at(places, pair, I64), aligned=8)
        f.store(pair // per_token, f.at(rows, its_place, I64), aligned=8)
    f.finish()


def _keep_run(f: Function, runs: Value, number: Value, words: tuple[Value, Value, Value]) -> None:
    for i, word in enumerate(words):
        f.store(word, f.at(runs, number * RUN_WORDS + i, I64), aligned=8)


def _write_gathering(module: Module) -> None:
    f = module.function("gather_rows", [("args", PTR), ("first", I64), ("last", I64)])
    args = f.parameter("args")
    sources, targets = ([argument(f, args, i + j, PTR) for j in range(3)] for i in (0, 3))
    rows, width, groups = argument(f, args, 6, PTR), argument(f, args, 7), argument(f, args, 8)
    with f.loop(f.parameter("first"), f.parameter("last")) as place:
        row = _word(f, rows, place)
        with f.loop(0, width, 16) as k:
            its_bytes = f.load(_BYTES, f.at(sources[0], row * width + k, I8))
            f.store(its_bytes, f.at(targets[0], place * width + k, I8))
        for source, target in zip(sources[1:], targets[1:], strict=True):
            with f.loop(0, groups) as group:
                word = f.load(I32, f.at(source, row * groups + group, I32), aligned=4)
                f.store(word, f.at(target, place * groups + group, I32), aligned=4)
    f.finish()


def _write_sum(module: Module) -> None:
    f = module.function("sum_experts", [("args", PTR), ("first", I64), ("last", I64)])
    args = f.parameter("args")
    products, places, weights, output = (argument(f, args, i, PTR) for i in (0, 1, 2, 5))
    per_token, width, stride, adds = (argument(f, args, i) for i in (3, 4, 6, 7))
    shared, logits = argument(f, args, 8), argument(f, args, 9)
    parts = (width + (COLUMNS_OF_SUM - 1)) // COLUMNS_OF_SUM
    with f.loop(f.parameter("first"), f.parameter("last")) as unit:
        row, start = unit // parts, unit % parts * COLUMNS_OF_SUM
        with f.loop(start, at_most(f, width, start + COLUMNS_OF_SUM), LANES) as column:
            mask = f.first_lanes(width - column, LANES)
            total = f.variable(FLOATS, 0.0)
            with f.loop(0, per_token) as slot:
                pair = row * per_token + slot
                weight = f.load(FLOAT, f.at(weights, pair, FLOAT), aligned=4)
                at = f.at(products, _word(f, places, pair) * width + column, FLOAT)
                total.value = f.fma(load_lanes(f, at, mask), f.splat(weight, LANES), total.value)
            with f.when(shared.differs(0)):
                factor = _sigmoid(f, logits, row)
                at = f.at(f.convert("inttoptr", shared, PTR), row * width + column, FLOAT)
                total.value = f.fma(load_lanes(f, at, mask), factor, total.value)
            place = f.at(output, row * stride + column, FLOAT)
            with f.when(adds.differs(0)):
                total.value = total.value + load_lanes(f, place, mask)
            store_lanes(f, total.value, place, mask)
    f.finish()


def _sigmoid(f: Function, logits: Value, row: Value) -> Value:
    """In all lanes; of no logits one."""
    factor = f.variable(FLOATS, 1.0)
    with f.when(logits.differs(0)):
        logit = f.load(FLOAT, f.at(f.convert("inttoptr", logits, PTR), row, FLOAT), aligned=4)
        factor.value = f.constant(FLOATS, 1.0) / (exponential(f, f.splat(logit * -1.0, LANES)) + 1.0)
    return factor.value


def _word(f: Function, base: Value, index: Value | int) -> Value:
    return f.load(I64, f.at(base, index, I64), aligned=8)
