"""What a draft model takes to read texts that it has to catch up with, by the sizes of the pieces that it reads.

Knows seconds and counts.
"""

CHUNK_TOKENS = 256
"""Of all sequences in one step, that a draft model catches up with."""
_SIZES = range(CHUNK_TOKENS.bit_length())
"""Of pieces, as powers of two."""
_FIRST_PIECE = 32
"""Tokens that it reads before that was measured."""
_LIKE_A_PASS = 32
"""Tokens that it is taken to read in the time of a pass of a draft, until that was measured."""
_MORE_FOR_TWICE = 1.5
"""Times that a piece twice as long is taken to cost, until that was measured."""
_WEIGHT = 0.15
"""Of the newest figure in a running mean."""


class ReadingTimes:
    """The seconds of pieces."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        """Bits of the number of tokens -> of a piece."""

    def note(self, num_tokens: int, seconds: float) -> None:
        """So many took so long. One that was held up by something else does not count for more than four."""
        known = self._seconds.setdefault(num_tokens.bit_length(), seconds)
        self._seconds[num_tokens.bit_length()] = known + _WEIGHT * (min(seconds, 4 * known) - known)

    def of(self, num_tokens: int, pass_seconds: float) -> float:
        """What so many take, in whole pieces and a last one.

        Args:
            num_tokens: that it lacks.
            pass_seconds: what a pass of a draft takes: all there is to go by until something was read.
        """
        whole, rest = divmod(num_tokens, CHUNK_TOKENS)
        return whole * self._of_piece(CHUNK_TOKENS, pass_seconds) + self._of_piece(rest, pass_seconds)

    def _of_piece(self, num_tokens: int, pass_seconds: float) -> float:
        if num_tokens == 0:
            return 0.0
        if not self._seconds:
            return (1 + num_tokens / _LIKE_A_PASS) * pass_seconds
        bits = num_tokens.bit_length()
        nearest = max([each for each in self._seconds if each <= bits], default=min(self._seconds))
        return self._seconds[nearest] * _MORE_FOR_TWICE ** max(0, bits - nearest)

    def most_within(self, seconds: float) -> int:
        """Tokens of a piece that so many seconds suffice for."""
        if seconds <= 0:
            return 0
        if not self._seconds:
            return _FIRST_PIECE
        return max([1 << bits for bits in _SIZES if self._of_piece(1 << bits, 0.0) <= seconds], default=0)
