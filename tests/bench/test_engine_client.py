"""Chats through an engine process are measured as an engine is, beside ids, and shown as a share of them."""

import pytest

from pagedchat.bench.engine.client import TEXT, ClientEngine
from pagedchat.bench.engine.engines import OURS
from pagedchat.bench.engine.measures import Figure, Meter
from pagedchat.bench.engine.report import client_table
from pagedchat.bench.engine.workloads import DecodeWork, Prompts
from pagedchat.config import EngineConfig
from pagedchat.errors import PagedChatError
from tests.service.fake_engine import ENTRY


def engine(loader: str) -> ClientEngine:
    return ClientEngine(EngineConfig(), [*ENTRY, f"tests.service.fake_engine:{loader}"])


def test_replies_of_an_engine_process_are_counted_and_its_chats_closed() -> None:
    with engine("load") as measured:
        replies = measured.generate([[1, 2, 3], [4, 5]], 7)
        assert list(map(len, replies)) == [7, 7]
        # 0.8 s, beside which the first token is nothing.
        work = DecodeWork(num_chats=1, prompt_tokens=4, new_tokens=400)
        [figure] = Meter(measured, Prompts(100), 1).decode(work)
        assert (figure.row, figure.engine) == ("decode_1_ms", TEXT)
        assert figure.value > 0


def test_a_process_that_cannot_start_is_one_sentence() -> None:
    with pytest.raises(PagedChatError, match="There is no model"), engine("load_missing"):
        pass


def test_a_process_that_dies_is_one_sentence() -> None:
    with engine("load_crash") as measured, pytest.raises(PagedChatError, match=r"crashed|died"):
        measured.generate([[1]], 3)


def test_text_is_shown_as_a_share_of_ids() -> None:
    figures = [
        Figure(row="decode_1_ms", engine=OURS, runs=[0.1]),
        Figure(row="decode_8", engine=OURS, runs=[1000.0]),
        Figure(row="output_8", engine=OURS, runs=[1000.0]),
        Figure(row="decode_1_ms", engine=TEXT, runs=[0.2]),
        Figure(row="decode_8", engine=TEXT, runs=[900.0]),
    ]
    table = client_table(figures)
    assert table.rows == (
        ("1 chat: a token", "ms", "0.100", "0.200", "50%"),
        ("8 chats: after the first token", "tok/s", "1000", "900", "90%"),
    )
