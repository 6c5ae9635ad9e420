from pagedchat.bench.engine.measure_shapes import ShapeFigures
from pagedchat.bench.engine.measures import Figure
from pagedchat.bench.engine.report import same_table, shape_table, speed_table, start_table
from pagedchat.bench.engine.same_tokens import SameTokens
from pagedchat.bench.engine.start import StartFigure
from pagedchat.bench.engine.stored import stored_peers
from pagedchat.bench.engine.workloads import ROWS

HERE = stored_peers()
ELSEWHERE = HERE.on("another GPU")


def test_best_stored_peer_differs_by_row() -> None:
    best = {key: HERE.best(row) for key, row in ROWS.items()}
    assert best["decode_1_ms"] == ("vllm in-process A", 0.923)
    assert best["output_256"] == ("transformers generate, static cache", 85318)
    assert best["first_1024_again_ms"] == ("vllm in-process B", 2.53)
    assert None not in best.values()
    assert (HERE.on(HERE.gpu), ELSEWHERE.best(ROWS["decode_1_ms"]), ELSEWHERE.start) == (HERE, None, {})
    assert "one NVIDIA H200" in HERE.source


def test_speed_is_shown_beside_the_best_stored_peer_and_what_ran_beside() -> None:
    figures = [
        Figure(row="decode_1_ms", engine="pagedchat", runs=[0.1, 0.2, 0.3]),
        Figure(row="output_8", engine="pagedchat", runs=[20000.0]),
        Figure(row="decode_1_ms", engine="transformers", runs=[3.0]),
    ]
    table = speed_table(figures, HERE)
    assert table.header == (
        "", "unit", "pagedchat", "from – to", "best stored peer", "its figure", "times", "transformers",
    )  # fmt: skip
    assert table.rows[0][1:] == (
        "ms",
        "0.200",
        "0.100 – 0.300",
        "vllm in-process A",
        "0.923",
        "4.62",
        "3.000 (15.00)",
    )
    assert table.rows[1][1:] == ("tok/s", "20000", "20000 – 20000", "vllm in-process A", "7639", "2.62", "–")
    assert speed_table(figures[:2], ELSEWHERE).header == ("", "unit", "pagedchat", "from – to")


def test_starts_are_shown_above_those_of_the_peers() -> None:
    runs = [{"imports": 1.0, "ready": 2.0, "first": 2.5}] * 3
    figures = [StartFigure(name="import torch", runs=[{"imports": 1.5}]), StartFigure(name="LLM", runs=runs)]
    table = start_table(figures, HERE)
    assert table.rows[:2] == (("import torch", "1.50", "–", "–"), ("LLM", "1.00", "2.00", "2.50"))
    assert ("vllm-warm (stored)", "9.60", "16.00", "16.03") in table.rows
    assert len(start_table(figures, ELSEWHERE).rows) == 2


def test_a_larger_shape_is_held_against_reading_its_weights_and_its_own_stored_peers() -> None:
    figures = [
        Figure(row="step_1_ms", engine="pagedchat", runs=[0.75, 0.9, 0.6]),
        Figure(row="step_1_long_ms", engine="pagedchat", runs=[1.0]),
    ]
    shape = ShapeFigures(
        name="llama-3.2-1b", dtype="float16", weight_bytes=2_000_000_000, copy_gb_s=4000, figures=figures
    )
    table = shape_table(shape, HERE)
    assert table.title == "llama-3.2-1b, float16; reading 2.00 GB of weights once takes 0.500 ms"
    assert table.rows[0][1:] == ("ms", "0.750", "0.600 – 0.900", "vllm in-process", "1.470", "1.96")
    assert table.rows[1][1:] == ("ms", "1.000", "1.000 – 1.000", "–", "–", "–")
    assert shape_table(shape, ELSEWHERE).header == ("", "unit", "pagedchat", "from – to")


def test_replies_that_differ_are_counted() -> None:
    compared = [SameTokens(what=w, num_same=n, num_replies=32, num_different=90) for w, n in (("a", 32), ("b", 31))]
    assert same_table(compared).rows == (("a", "yes", "32 of 32", "90"), ("b", "no", "31 of 32", "90"))
