import pytest
import torch

from pagedchat.engine.groups.beam_params import MAX_BEAM_WIDTH, BeamSearchParams
from pagedchat.engine.groups.search import BeamSearch
from pagedchat.ops.sampling.choose_beams import RANKED, choose_beams
from pagedchat.ops.sampling.kernels import MAX_BEAMS
from tests.ops.paged_case import DEVICES
from tests.ops.sampling.choose_beams_case import HISTORY_LEN, make_case

CASES = [([4], 0), ([1], 1), ([32], 1), ([2, 5, 3], 0), ([3, 8], 6), ([1, 1], 60)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("widths", "num_stops"), CASES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_step_is_that_of_a_search_on_the_host(widths: list[int], num_stops: int, seed: int, device: str) -> None:
    state, likely, ranked = make_case(widths, num_stops, 3, device, seed)
    rows, sums = state.rows.tolist(), state.sums.tolist()
    choose_beams(state, likely, ranked, torch.tensor([6], dtype=torch.int32, device=device))
    if device == "cuda":
        torch.cuda.synchronize()
    found = ranked.numpy().view(RANKED)[5 % HISTORY_LEN]
    assert not ranked[[step for step in range(HISTORY_LEN) if step != 5 % HISTORY_LEN]].any()
    live = set()
    for index, width in enumerate(widths):
        search = BeamSearch(BeamSearchParams(width, 100), frozenset(range(num_stops)))
        search.beams = [([], total) for total in sums[index][:width]]
        own = rows[index][:width]
        token_ids, logprobs = likely.token_ids.tolist(), likely.logprobs.tolist()
        count = 1 + search.num_choices
        # Of equals a beam's own order counts on the device: the host is given it.
        order = {(b, t): i for b, row in enumerate(own) for i, t in enumerate(token_ids[row][1:count])}
        choices = [list(zip(token_ids[row][1:count], logprobs[row][1:count], strict=True)) for row in own]
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


def test_limits_are_those_of_searches() -> None:
    assert MAX_BEAMS == MAX_BEAM_WIDTH


def test_wrong_arguments_are_named() -> None:
    state, likely, ranked = make_case([2], 0, 0, "cpu")
    step = torch.ones(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"ranked has shape \[3, 1, 8\], expected \[3, 1, 1024\]"):
        choose_beams(state, likely, ranked[:, :, :8], step)
    with pytest.raises(ValueError, match=r"ranked is torch\.int8, expected torch\.uint8"):
        choose_beams(state, likely, ranked.view(torch.int8), step)
    with pytest.raises(ValueError, match=r"step is torch\.int64, expected torch\.int32"):
        choose_beams(state, likely, ranked, step.long())
