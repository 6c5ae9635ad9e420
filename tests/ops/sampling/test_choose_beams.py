from dataclasses import fields

import pytest
import torch

from pagedchat.engine.groups.beam_params import MAX_BEAM_WIDTH, BeamSearchParams
from pagedchat.engine.groups.search import BeamSearch
from pagedchat.ops.sampling.choose_beams import RANKED, BeamState, choose_beams
from pagedchat.ops.sampling.kernels import MAX_BEAMS
from tests.ops.paged_case import DEVICES
from tests.ops.sampling.choose_beams_case import HISTORY_LEN, NUMBER, BeamCase, make_case

CASES = [([4], 0), ([1], 1), ([32], 1), ([2, 5, 3], 0), ([3, 8], 6), ([1, 1], 60)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("widths", "num_stops"), CASES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_step_is_that_of_a_search_on_the_host(widths: list[int], num_stops: int, seed: int, device: str) -> None:
    dtype = [torch.float16, torch.bfloat16, torch.float32][seed - 1]
    case = make_case(widths, num_stops, 3, device, seed, dtype)
    state, likely = case.state, case.likely
    rows, sums = state.rows.tolist(), state.sums.tolist()
    choose_beams(*case)
    if device == "cuda":
        torch.cuda.synchronize()
    found = case.ranked.numpy().view(RANKED)[NUMBER % HISTORY_LEN]
    assert not case.ranked[[step for step in range(HISTORY_LEN) if step != NUMBER % HISTORY_LEN]].any()
    assert int(state.arrivals) == 0
    check_likely(case)
    live = set()
    for index, width in enumerate(widths):
        search = BeamSearch(BeamSearchParams(width, 100), frozenset(range(num_stops)))
        search.beams = [([], total) for total in sums[index][:width]]
        own = rows[index][:width]
        token_ids, logprobs = likely.token_ids.tolist(), likely.logprobs.tolist()
        count = search.num_choices
        # Of equals a beam's own order counts on the device: the host is given it.
        order = {(b, t): i for b, row in enumerate(own) for i, t in enumerate(token_ids[row][:count])}
        choices = [list(zip(token_ids[row][:count], logprobs[row][:count], strict=True)) for row in own]
        every = [(-(sums[index][b] + p), b, order[b, t], t) for b, of in enumerate(choices) for t, p in of]
        best = [(-cost, b, t) for cost, b, _, t in sorted(every)[: search.num_choices]]
        assert found[index][: search.num_choices].tolist() == best
        going_on = search.advance_by(best)
        new_rows, places = state.rows[index, :width].tolist(), []
        for rank, (beam, token_id) in enumerate(going_on):
            row = new_rows[rank]
            assert (int(state.sources[row]), int(state.next_tokens[row])) == (own[beam], token_id)
            places.append(row if row != own[beam] else -1)
        assert sorted(new_rows) == sorted(own)
        assert state.sums[index, :width].tolist() == [total for _, total in search.beams]
        given_up = [row for beam, row in enumerate(own) if beam not in {beam for beam, _ in going_on}]
        assert [row for row in places if row >= 0] == given_up
        live.update(own)
    others = [row for row in range(len(state.sources)) if row not in live]
    assert all(int(state.sources[row]) == -1 and int(state.next_tokens[row]) == -7 for row in others)


@pytest.mark.parametrize("device", DEVICES)
def test_steps_follow_one_another(device: str) -> None:
    """The next one takes up what the one before has left, in other thread blocks if rows are few or many."""
    results = []
    for num_others in (1, 30):
        case = make_case([4, 2], 1, num_others, device, 3)
        order = case.counts.argsort(descending=True, stable=True)  # a search's rows, then the others
        logits, rows = case.logits[order], case.state.rows.cpu()
        places = {int(row): place for place, row in enumerate(order)}
        for search, width in enumerate((4, 2)):
            rows[search, :width] = torch.tensor([places[int(row)] for row in rows[search, :width]])
        case.state.rows.copy_(rows)
        case = case._replace(logits=logits, counts=case.counts[order].contiguous())
        history = []
        for number in range(4):
            case.step.fill_(number + 1)
            choose_beams(*case)
            if device == "cuda":
                torch.cuda.synchronize()
            history.append(case.ranked[number % HISTORY_LEN].clone())
        results.append((history, case.state.sums.tolist()))
    (few, sums), (many, other_sums) = results
    assert len({tuple(each.flatten().tolist()) for each in few}) == 4
    assert [row[:4] for row in sums] == [row[:4] for row in other_sums]
    assert all(torch.equal(one, other) for one, other in zip(few, many, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_that_knows_of_no_search_yet_changes_nothing(device: str) -> None:
    """As one that is captured."""
    case = make_case([3, 2], 1, 0, device)
    case.state.heads.zero_()
    case.counts.fill_(-1)
    before = [tensor.clone() for tensor in (*vars_of(case.state), case.ranked)]
    choose_beams(*case)
    if device == "cuda":
        torch.cuda.synchronize()
    after = (*vars_of(case.state), case.ranked)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def vars_of(state: BeamState) -> list[torch.Tensor]:
    """All that it holds."""
    return [getattr(state, each.name) for each in fields(state)]


def check_likely(case: BeamCase) -> None:
    """Each beam's row has its most likely tokens, no other row has any."""
    order = torch.sort(case.logits.float(), dim=-1, descending=True, stable=True).indices
    chances = torch.log_softmax(case.logits.double(), dim=-1)
    for row, count in enumerate(case.counts.tolist()):
        ids, logprobs = case.likely.token_ids[row], case.likely.logprobs[row]
        if count < 0:
            assert not ids.any()
            assert not logprobs.any()
            continue
        assert torch.equal(ids[:count].long(), order[row, :count])
        wanted = chances[row, order[row, :count]]
        torch.testing.assert_close(logprobs[:count].double(), wanted, rtol=1e-6, atol=5e-6)


def test_limits_are_those_of_searches() -> None:
    assert MAX_BEAMS == MAX_BEAM_WIDTH


def test_wrong_arguments_are_named() -> None:
    case = make_case([2], 0, 0, "cpu")
    with pytest.raises(ValueError, match=r"ranked has shape \[3, 1, 8\], expected \[3, 1, 1024\]"):
        choose_beams(*case._replace(ranked=case.ranked[:, :, :8]))
    with pytest.raises(ValueError, match=r"ranked is torch\.int8, expected torch\.uint8"):
        choose_beams(*case._replace(ranked=case.ranked.view(torch.int8)))
    with pytest.raises(ValueError, match=r"step is torch\.int64, expected torch\.int32"):
        choose_beams(*case._replace(step=case.step.long()))
    with pytest.raises(ValueError, match=r"counts has shape \[1\], expected \[2\]"):
        choose_beams(*case._replace(counts=case.counts[:1]))
    with pytest.raises(ValueError, match=r"logits has shape \[1, 11\], expected \[2, \*\]"):
        choose_beams(*case._replace(logits=case.logits[:1]))
