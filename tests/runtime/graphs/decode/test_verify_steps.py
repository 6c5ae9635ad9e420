"""Steps that verify drafts: which batches they take, at which sizes, and what is in memory when they run."""

import pytest
import torch

from pagedchat.engine.output import DraftVerifier, ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.graphs.decode.state_buffers import DraftRows
from tests.runtime.graphs.case import LATE, VOCAB_SIZE, batch_of, chunk, decoding, make_runner, tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model("opt", "cpu", torch.float32)


def drafted(part: ScheduledSequence, draft: list[int], **params: object) -> ScheduledSequence:
    part.draft, part.num_tokens = draft, 1 + len(draft)
    part.sequence.sampling_params = SamplingParams(**{"temperature": 0, **params})
    return part


def test_rows_of_drafts_are_laid_out_as_decodes_of_as_many_sequences_would_be(model):
    runner = make_runner(model, 16, captured=True)
    long, short = decoding(1, 20, [3, 5]), decoding(2, 4, [7])
    drafted(long, [50, 51, 52]), drafted(short, [])
    verifies = runner.decodes.verifies
    begun = verifies.begin(batch_of(long, short))
    assert begun is not None
    bucket = begun.serving.bucket
    assert (bucket.num_seqs, bucket.context_len) == (8, 256)
    verifies._buffers.upload_drafts(bucket, _rows_of(long, short))  # the step has left those of the next one
    state = verifies._buffers.state(bucket)
    assert state.token_ids.tolist() == [19, 50, 51, 52, 3, 0, 0, 0]
    assert state.positions.tolist() == [19, 20, 21, 22, 3, -1, -1, -1]
    assert state.seq_lens.tolist() == [20, 21, 22, 23, 4, 0, 0, 0]
    assert state.block_tables[:4, :2].tolist() == [[3, 5]] * 4
    assert state.block_tables[4, 0] == 7


def _rows_of(*parts: ScheduledSequence) -> DraftRows:
    tokens = [token for part in parts for token in (part.sequence.token_ids[-1], *part.draft)]
    places = [place for part in parts for place in range(part.start, part.start + part.num_tokens)]
    tables = [part.sequence.block_table for part in parts]
    return DraftRows(tokens, places, tables, [part.num_tokens for part in parts])


@pytest.mark.parametrize(
    "params",
    [{"presence_penalty": 0.5}, {"logit_bias": {3: 5.0}}, {"logprobs": 2}],
    ids=["penalties", "rules", "logprobs"],
)
def test_what_differs_from_row_to_row_is_left_to_rows(model, params):
    runner = make_runner(model, 16, captured=True)
    assert runner.verify(batch_of(drafted(decoding(1, 20, [3, 5]), [50], **params))) is None
    assert runner.verify(batch_of(drafted(decoding(1, 20, [3, 5]), [50]))) is not None


def test_a_batch_with_a_prompt_in_it_is_left_to_rows(model):
    runner = make_runner(model, 16, captured=True, max_num_tokens=64)
    prompt = chunk([1, 2, 3, 4, 5], [9], end=3)
    assert runner.verify(batch_of(drafted(decoding(1, 20, [3, 5]), [50]), prompt)) is None


def test_one_says_how_many_rows_there_are_steps_for(model):
    runner = make_runner(model, 16, captured=True, max_num_seqs=40)
    assert isinstance(runner, DraftVerifier)
    sequence = decoding(1, 20, [3, 5]).sequence
    assert [runner.most_rows([sequence], 30, wanted) for wanted in (2, 8, 9, 32, 40)] == [8, 8, 16, 32, 32]


def test_nobody_drafts_for_a_step_that_is_not_there_and_it_is_made_beside(model):
    clock = [0.0]
    runner = make_runner(model, 16, captured=True, max_num_tokens=64, clock=lambda: clock[0])
    sequence = decoding(1, 20, [3, 5]).sequence
    sequence.sampling_params = SamplingParams(temperature=0)
    assert runner.most_rows([sequence], 30, 16) == 0
    assert sorted(bucket.num_seqs for bucket, _ in runner.decodes.store.making) == [8, 16]
    clock[0] = LATE
    runner.make_all_wanted()
    assert runner.most_rows([sequence], 30, 16) == 16
    assert runner.decodes.store.making == {}


def test_drawn_tokens_are_those_of_one_row_after_the_other(model):
    """By seed and position, whatever else is in the step."""
    params = {"temperature": 1.0, "top_k": 20}
    texts = [[(7 * i + j) % VOCAB_SIZE for j in range(12)] for i in range(3)]
    found = []
    for width in (1, 4):
        runner, replies = make_runner(model, 16, captured=True, max_num_tokens=64), []
        for number, text in enumerate(texts):
            runner.execute(batch_of(chunk(text, [number])))
        for number, text in enumerate(texts):
            reply: list[int] = []
            for first in range(0, 4, width):
                part = decoding(number, 13 + first, [number])
                part.sequence.token_ids, part.sequence.seed = [*text, *range(20, 21 + first)], 5 + number
                drafted(part, list(range(21 + first, 20 + first + width)), **params)
                output = runner.verify(batch_of(part)) if width > 1 else runner.execute(batch_of(part))
                reply += output.token_ids[0]
            replies.append(reply)
        found.append(replies)
    assert found[0] == found[1]
