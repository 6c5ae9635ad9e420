"""What a beam search is asked for, named as vLLM's users know it."""

import msgspec

from pagedchat.bounds import INT32_MAX, Number, Whole, check_flag

MAX_BEAM_WIDTH = 32
"""Beams of one search: a step tells the most likely tokens of each, twice as many as there are beams."""

_CHECKS = {
    "beam_width": Whole(1, MAX_BEAM_WIDTH).check,
    "max_tokens": Whole(1, INT32_MAX).check,
    "ignore_eos": check_flag,
    "temperature": Number(0, 1000).check,
    "length_penalty": Number(-10, 10).check,
}


class BeamSearchParams(msgspec.Struct, frozen=True):
    """Settings of one beam search."""

    beam_width: int
    """Beams that live at a time, and hypotheses that come back."""
    max_tokens: int
    """Of each hypothesis, the prompt left out."""
    ignore_eos: bool = False
    """Go on after the end-of-sequence token."""
    temperature: float = 0.0
    """Changes nothing, as in vLLM: beams are ranked by the log-probabilities that the model gives."""
    length_penalty: float = 1.0
    """A hypothesis is ranked by the sum of its log-probabilities divided by its number of tokens, the prompt left
    out, to this power: above 0 long ones are preferred, below 0 short ones."""

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            given = getattr(self, name)
            value = check(name, given)
            if value is not given:
                msgspec.structs.force_setattr(self, name, value)
