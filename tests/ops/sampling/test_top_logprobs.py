import pytest
import torch

from pagedchat.ops.sampling.kernels import LIKELY_SHAPES, MAX_LIKELY, choose_shape
from pagedchat.ops.sampling.top_logprobs import LookUp, TopLogprobs, top_logprobs
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, normal

UNTOUCHED = -7
FEW_ROWS, MANY_ROWS = 9, 40
"""That several thread blocks share on a GPU of 132 multiprocessors, and that have one each."""


def looked_up(logits: torch.Tensor, chosen: list[int], counts: list[int], most: int) -> TopLogprobs:
    """On the CPU; what nobody has written is `UNTOUCHED`."""
    device = logits.device
    output = TopLogprobs.empty(len(logits), most, device)
    for tensor in output:
        tensor.fill_(UNTOUCHED)
    ids, numbers = (torch.tensor(values, dtype=torch.int32, device=device) for values in (chosen, counts))
    return TopLogprobs(*(tensor.cpu() for tensor in top_logprobs(logits, ids, numbers, output)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("vocab_size", [2, 65, 1003, 50272])
def test_numbers_are_those_of_a_softmax_in_float64(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    logits = normal(6, vocab_size, device=device, dtype=dtype, scale=4.0)
    logits[1] = 1.5
    logits[2, 1:] = -torch.inf
    most = min(vocab_size, 20)
    chosen, counts = [vocab_size - 1, 1, 0, vocab_size // 2, 0, 1], [most, most, 1, 0, -1, 1]
    found = looked_up(logits, chosen, counts, most)
    wanted = torch.log_softmax(logits.double().cpu(), dim=-1)
    order = torch.sort(logits.float().cpu(), dim=-1, descending=True, stable=True).indices
    for i, (token, count) in enumerate(zip(chosen, counts, strict=True)):
        if count < 0:
            assert all((tensor[i] == UNTOUCHED).all() for tensor in found)
            continue
        ids = [token, *order[i, :count].tolist()]
        assert found.token_ids[i].tolist() == ids + [UNTOUCHED] * (most - count)
        torch.testing.assert_close(found.logprobs[i, : 1 + count].double(), wanted[i, ids], rtol=1e-6, atol=5e-6)
        assert int(found.ranks[i]) == 1 + order[i].tolist().index(token)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
@pytest.mark.parametrize("num_rows", [FEW_ROWS, MANY_ROWS])
def test_equals_are_in_the_order_of_their_ids_wherever_rows_begin(
    num_rows: int, dtype: torch.dtype, device: str
) -> None:
    """Among them both zeros, and tokens that cannot come; neighbours of rows are likelier than all."""
    vocab_size = 1003
    wide = torch.full((num_rows, vocab_size + 3), torch.inf, dtype=dtype, device=device)
    logits = wide[:, 1 : 1 + vocab_size]
    values = torch.tensor([-torch.inf, -1.0, -0.0, 0.0, 1.0, 2.0], dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    picked = torch.randint(len(values), (num_rows, vocab_size), generator=generator)
    picked[::4] = picked[::4].clamp(max=3)
    picked[3] = 0  # nothing can come but one token
    picked[3, 500] = 4
    logits[:] = values[picked].to(device)
    chosen = torch.randint(vocab_size, (num_rows,), generator=generator).tolist()
    found = looked_up(logits, chosen, [30] * num_rows, 30)
    order = torch.sort(logits.float().cpu(), dim=-1, descending=True, stable=True).indices
    assert torch.equal(found.token_ids[:, 1:], order[:, :30].int())
    assert found.ranks.tolist() == [1 + order[i].tolist().index(token) for i, token in enumerate(chosen)]
    wanted = torch.log_softmax(logits.double().cpu(), dim=-1).gather(1, found.token_ids.long())
    torch.testing.assert_close(found.logprobs.double(), wanted, rtol=1e-6, atol=5e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_likeliest_tokens_that_lie_side_by_side_are_all_found(device: str) -> None:
    """Few threads have read them."""
    logits = torch.arange(70_000, device=device).flip(0).view(1, -1) / 100.0
    found = looked_up(logits, [60_000], [MAX_LIKELY], MAX_LIKELY)
    assert found.token_ids.tolist() == [[60_000, *range(MAX_LIKELY)]]
    assert found.ranks.tolist() == [60_001]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("vocab_size", [2, 70, 5003])
def test_numbers_are_the_same_to_the_bit_in_any_company(vocab_size: int, dtype: torch.dtype, device: str) -> None:
    """However many thread blocks share a row. With some vocabularies most of them have nothing of it."""
    wide = normal(MANY_ROWS, vocab_size + 1, device=device, dtype=dtype, scale=3.0)
    logits, most = wide[:, :vocab_size], min(vocab_size, MAX_LIKELY)
    logits[1] = -torch.inf
    logits[1, vocab_size - 1] = 5.0
    logits[2] = (logits[2] / 3).round()
    chosen = [i * 13 % vocab_size for i in range(MANY_ROWS)]
    counts = [most, most, most - 1, 0, -1, 1, 2, most // 2, most] + [most] * (MANY_ROWS - FEW_ROWS)
    many = looked_up(logits, chosen, counts, most)
    few = looked_up(logits[:FEW_ROWS], chosen[:FEW_ROWS], counts[:FEW_ROWS], most)
    assert all(torch.equal(one, other[:FEW_ROWS]) for one, other in zip(few, many, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_rows", [1, MANY_ROWS])
def test_the_likeliest_token_of_every_thread_block_counts(num_rows: int, device: str) -> None:
    """Equals that are far apart, one of them the row's last token."""
    logits = torch.zeros(num_rows, 20_000, dtype=torch.float16, device=device)
    likely = [*range(19_999, 0, -1_250)][::-1]
    logits[:, likely] = 4.0
    found = looked_up(logits, [19_999] * num_rows, [len(likely) + 2] * num_rows, len(likely) + 2)
    assert found.token_ids.tolist() == [[19_999, *likely, 0, 1]] * num_rows
    assert found.ranks.tolist() == [len(likely)] * num_rows


def test_few_rows_are_shared_where_thread_blocks_can_work_together() -> None:
    shared, alone = LIKELY_SHAPES
    assert choose_shape(16, 132, True, LIKELY_SHAPES) == shared
    assert choose_shape(17, 132, True, LIKELY_SHAPES) == alone
    assert choose_shape(1, 132, False, LIKELY_SHAPES) == alone
    assert shared[0] * shared[1] == alone[0] * alone[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("middle", [-30_000.0, 20_000.0])
def test_numbers_are_as_exact_wherever_logits_lie(middle: float, device: str) -> None:
    logits = normal(2, 5000, device=device, dtype=torch.float32, scale=2.0) + middle
    found = looked_up(logits, [0, 4999], [5, 5], 5)
    wanted = torch.log_softmax(logits.double().cpu(), dim=-1).gather(1, found.token_ids.long())
    torch.testing.assert_close(found.logprobs.double(), wanted, rtol=1e-6, atol=5e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_are_looked_at_once_have_other_contents_later(device: str) -> None:
    logits, chosen, counts = torch.zeros(1, 40), torch.zeros(1, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    logits, chosen, counts = (tensor.to(device) for tensor in (logits, chosen, counts))
    look_up = LookUp(logits, chosen, counts, output := TopLogprobs.empty(1, 1, logits.device))
    for token in (7, 30):
        logits.zero_()
        logits[0, token] = 2.0
        chosen.fill_(token + 1)
        look_up.launch()
        assert output.token_ids.tolist() == [[token + 1, token]]
        assert output.ranks.tolist() == [token + 2]
    assert look_up.reads(logits)
    assert not look_up.reads(logits.clone())


def test_wrong_arguments_are_named() -> None:
    logits, ids = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"chosen has shape \[3\], expected \[2\]"):
        top_logprobs(logits, torch.zeros(3, dtype=torch.int32), ids, TopLogprobs.empty(2, 3, logits.device))
    with pytest.raises(ValueError, match=r"counts is torch\.int64, expected torch\.int32"):
        top_logprobs(logits, ids, ids.long(), TopLogprobs.empty(2, 3, logits.device))
    with pytest.raises(ValueError, match="output has room for 65 tokens, expected at most 64"):
        top_logprobs(logits, ids, ids, TopLogprobs.empty(2, 65, logits.device))
    with pytest.raises(ValueError, match="logits has stride 2 between tokens, expected 1"):
        top_logprobs(torch.zeros(2, 8)[:, ::2], ids, ids, TopLogprobs.empty(2, 3, logits.device))
