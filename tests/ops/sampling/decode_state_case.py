"""A decode state of a few rows, and what a step must have made of it."""

import torch

from pagedchat.ops.sampling.decode_state import DecodeState

HISTORY_LEN = 3


def make_state(positions: list[int], device: str, step: int = 4) -> DecodeState:
    def numbers(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    history = torch.full((HISTORY_LEN, len(positions)), -7, dtype=torch.int32, pin_memory=device == "cuda")
    return DecodeState(
        token_ids=numbers([1] * len(positions)),
        positions=numbers(positions),
        seq_lens=numbers([position + 1 for position in positions]),
        block_tables=torch.zeros((len(positions), 2), dtype=torch.int32, device=device),
        step=numbers([step]),
        history=history,
        arrivals=numbers([0]),
    )


def check_moved_on(state: DecodeState, positions: list[int], token_ids: list[int], step: int = 4) -> None:
    if state.token_ids.is_cuda:
        torch.cuda.synchronize()
    moved = [position + (position >= 0) for position in positions]
    assert state.token_ids.tolist() == token_ids
    assert state.positions.tolist() == moved
    assert state.seq_lens.tolist() == [position + 1 for position in moved]
    assert state.step.tolist() == [step + 1]
    assert state.history[step % HISTORY_LEN].tolist() == token_ids
    assert state.history[(step + 1) % HISTORY_LEN].tolist() == [-7] * len(positions)
    assert state.arrivals.tolist() == [0]
