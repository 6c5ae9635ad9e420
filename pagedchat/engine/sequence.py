"""One sequence: its tokens, its block table, and where it stands. Data only; the block manager and the
scheduler change it.

::

    token_ids   |<------- num_computed ------->|<-- to be computed -->|
    block_table [ b0 ][ b1 ][ b2 ][ b3 .. ]      covers at least num_computed tokens
    hashes      [ h0 ][ h1 ][ h2 ]               one per full computed block, with prefix caching on
"""

from typing import Protocol

import msgspec

from pagedchat.cache_events import CopyCause, FinishReason, SequenceHeld, SequenceStatus
from pagedchat.engine.groups.group import SequenceGroup
from pagedchat.engine.sampling_params import SamplingParams

_NO_REQUEST = SamplingParams()
"""Of a sequence that nothing was asked of yet."""


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How likely one token was, and which tokens were the most likely ones in its place."""

    token_ids: list[int]
    """The token itself, then the most likely ones, as many as were asked for; it may be among them again."""
    logprobs: list[float]
    """Theirs, by the model alone: before penalties, temperature and any rule."""
    rank: int
    """Of the token itself: 1 where none was likelier."""


class ToldLater(Protocol):
    """What a step tells of its tokens, one of each sequence, read when somebody asks for it."""

    def __getitem__(self, place: int, /) -> TokenLogprobs:
        """Of the sequence in this place of the batch; asked once for each."""
        ...


class _ToldRun:
    """What the steps of a run tell of one sequence's tokens.

    Args:
        steps: of the run, so far.
        place: of the sequence in each.
    """

    __slots__ = ("_num_read", "_place", "_steps")

    def __init__(self, steps: list[ToldLater], place: int) -> None:
        self._steps, self._place, self._num_read = steps, place, 0

    def read(self) -> list[TokenLogprobs]:
        """Of steps that were not read yet."""
        entries = [step[self._place] for step in self._steps[self._num_read :]]
        self._num_read += len(entries)
        return entries

    def skip(self) -> None:
        """What was told so far is of no use."""
        self._num_read = len(self._steps)


class Sequence:
    """The unit of the five verbs (open, extend, fork, rewind, close)."""

    __slots__ = (
        "__weakref__", "_logprobs", "_unread", "arrival", "awaits_first_run", "block_hashes", "block_table",
        "cut_by", "finish_reason", "grammar", "group", "held", "host_block_table", "num_begun_tokens",
        "num_cached_tokens", "num_computed", "num_found_tokens", "num_prompt_tokens", "priority",
        "prompt_logprobs", "sampling_params", "seed", "seq_id", "status", "stop_length", "stop_token_ids",
        "token_hashes", "token_ids", "writable_len",
    )  # fmt: skip

    def __init__(self, seq_id: int) -> None:
        self.seq_id = seq_id
        self.token_ids: list[int] = []
        """Prompts and replies of all turns so far."""
        self.num_computed = 0
        """Leading tokens whose KV is in the cache (on the device, or in host memory when swapped)."""
        self.num_prompt_tokens = 0
        """Length of `token_ids` when the current request was asked for; the rest is its reply."""
        self.num_begun_tokens = 0
        """Of the reply, tokens with which it was to begin: they were given, not generated."""
        self.num_cached_tokens = 0
        """Tokens of the current request's prompt that did not have to be computed."""
        self.num_found_tokens = 0
        """Of those, tokens found in the prefix cache; the sequence had the others still."""
        self.awaits_first_run = False
        """Whether the current request has not run yet (prefix hits after a preemption save no prompt tokens)."""
        self.block_table: list[int] = []
        """Device block ids in order; empty while swapped."""
        self.host_block_table: list[int] = []
        """Host block ids in order; empty unless swapped out."""
        self.block_hashes: list[bytes] = []
        """Chained hashes of the full computed blocks (a prefix of the block table)."""
        self.token_hashes: list[bytes] = []
        """Chained hashes of full blocks of tokens, computed or not, as far as somebody asked for them."""
        self.cut_by: CopyCause = ""
        """What put the end of the computed tokens inside a block that may be full and findable."""
        self.held: SequenceHeld | None = None
        """Why it waits, as far as that was told."""
        self.writable_len = 0
        """Tokens up to this length may be written without asking the block manager: blocks present, not shared."""
        self.status: SequenceStatus = "parked"
        self.sampling_params = _NO_REQUEST
        self.grammar: object | None = None
        """Of the request's form, as `Grammars` made it; None where a reply may be anything."""
        self.seed = 0
        """The request's seed, chosen by the engine where the request named none."""
        self._logprobs: list[TokenLogprobs] = []
        self._unread: list[_ToldRun] = []
        """What tells of the tokens behind those."""
        self.prompt_logprobs: list[TokenLogprobs] = []
        """Of its prompt's tokens from the second on, as far as they are computed, likewise."""
        self.stop_token_ids: frozenset[int] = frozenset()
        self.stop_length = 0
        """Generation ends when `token_ids` reaches this length."""
        self.finish_reason: FinishReason | None = None
        self.priority = 0
        """Higher goes first (the focused chat)."""
        self.arrival = 0
        """Order of requests; older goes first among equals."""
        self.group: SequenceGroup | None = None
        """Those who answer the same prompt with it, if there are any."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def __repr__(self) -> str:
        return (
            f"Sequence({self.seq_id}, {self.status}, tokens={len(self.token_ids)}, "
            f"computed={self.num_computed}, blocks={self.block_table or self.host_block_table})"
        )

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """Of the tokens that the current request has generated, where it wants them; those with which its reply was
        to begin are left out."""
        if self._unread:
            self._logprobs += [entry for told in self._unread for entry in told.read()]
            del self._unread[:-1]  # of the last one there may be more to come
        return self._logprobs

    @logprobs.setter
    def logprobs(self, logprobs: list[TokenLogprobs]) -> None:
        self._logprobs = logprobs
        for told in self._unread:
            told.skip()

    def tell_of_run(self, steps: list[ToldLater], place: int) -> None:
        """More entries for `logprobs`, read when those are asked for.

        Args:
            steps: of a run, one entry of each; the run may add to them as long as the sequence is in it.
            place: of the sequence in each.
        """
        self._unread.append(_ToldRun(steps, place))

    @property
    def num_uncomputed(self) -> int:
        """Tokens that must go through the model before the next one can be sampled."""
        return len(self.token_ids) - self.num_computed

    @property
    def output_token_ids(self) -> list[int]:
        """What the current request has generated so far."""
        return self.token_ids[self.num_prompt_tokens :]
