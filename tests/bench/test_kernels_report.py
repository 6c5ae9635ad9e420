from pagedchat.bench.kernels.figures import OURS, Figure
from pagedchat.bench.kernels.report import make_tables
from pagedchat.bench.kernels.stored import StoredPeers

STORED = StoredPeers(
    gpu="one GPU",
    measured="2026-01-01",
    versions={"torch": "2"},
    us={
        "decode": {"1,2": {"fast paged": 12.0, "slow paged": 30.0, "torch sdpa dense cudnn": 9.0}},
        "prefill": {"8,2": {"vllm FA3 paged": 90.0}},
    },
)


def ours(section: str = "decode", shape: str = "1,2", us: float | None = 10.0, **more: float | str) -> Figure:
    return Figure(section=section, shape=shape, name=OURS, us=us, **more)  # type: ignore[arg-type]


def peer(name: str, us: float | None, section: str = "decode", shape: str = "1,2") -> Figure:
    return Figure(section=section, shape=shape, name=name, us=us)


def test_row_sets_ours_beside_the_fastest_paged_peer_and_the_dense_limit() -> None:
    figures = [
        ours(gb_s=500.4, percent_of_limit=12.3, host_us=4.56, error=2.2e-4),
        peer("here paged", 11.0),
        peer("torch sdpa dense flash", 1.0),
        peer("torch sdpa dense cudnn", 9.5),
    ]
    [table] = make_tables(figures, STORED)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row.pop("batch, heads, KV heads, head size, context") == "1,2"
    assert row == {
        "us": "10.0",
        "GB/s": "500",
        "% of copy": "12",
        "host us": "4.6",
        "error": "2e-04",
        "best paged, us": "here paged 11.0",
        "best paged, x": "1.10",
        "dense cuDNN, us": "9.50",
        "dense cuDNN, x": "0.95",
    }


def test_stored_figure_of_a_peer_that_was_not_run_counts_and_has_a_star() -> None:
    [table] = make_tables([ours(), peer("here paged", 13.0), peer("slow paged", 12.5)], STORED)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert (row["best paged, us"], row["best paged, x"]) == ("fast paged 12.0*", "1.20")
    assert (row["dense cuDNN, us"], row["dense cuDNN, x"]) == ("9.00*", "0.90")


def test_peer_that_was_run_counts_with_what_it_took_here() -> None:
    [table] = make_tables([ours(), peer("fast paged", 20.0)], STORED)
    assert table.rows[0][table.header.index("best paged, us")] == "fast paged 20.0"


def test_stored_figures_are_left_out_on_another_gpu() -> None:
    [table] = make_tables([ours()], STORED.on("another GPU"))
    assert table.header[1:] == ("us",)
    assert STORED.on("one GPU") is STORED


def test_columns_that_nothing_fills_are_left_out() -> None:
    [table] = make_tables([ours(section="copy", shape="8")], STORED)
    assert table.header[1:] == ("us",)


def test_what_failed_is_said_and_its_peers_stay() -> None:
    figures = [ours(us=None, failed="boom"), peer("here paged", 11.0), peer("broken paged", None)]
    [table] = make_tables(figures, STORED)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row["us"] == "failed"
    assert row["best paged, us"] == "here paged 11.0"
    assert "best paged, x" not in row


def test_a_shape_without_a_figure_has_a_dash() -> None:
    figures = [ours(), peer("here paged", 11.0), ours(shape="7,7")]
    [table] = make_tables(figures, STORED)
    assert table.rows[1][0] == "7,7"
    assert table.rows[1][table.header.index("best paged, us")] == "–"


def test_each_rival_of_prefill_has_its_column() -> None:
    [table] = make_tables([ours(section="prefill", shape="8,2", us=100.0)], STORED)
    row = dict(zip(table.header, table.rows[0], strict=True))
    assert row["FA3 paged, x"] == "0.90"


def test_sections_come_in_one_order_as_text_and_as_markdown() -> None:
    tables = make_tables([ours(section="copy", shape="8"), ours(section="merge", shape="4", us=2.345)], STORED)
    assert [table.title for table in tables] == ["`merge_attn_states`", "`copy_blocks`"]
    assert tables[0].as_text() == (
        "merge_attn_states\n  tokens, heads, head size    us\n  4                         2.35"
    )
    assert tables[0].as_markdown() == (
        "`merge_attn_states`:\n\n| tokens, heads, head size | us |\n| --- | ---: |\n| 4 | 2.35 |"
    )
