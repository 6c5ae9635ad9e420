"""A crowd of chats on an engine that come, are forked, cut back, stopped, asked again and closed, as a seed says.

Knows of every token whether it was given, or chosen as the most likely one, or drawn.
"""

import random
from collections import Counter
from typing import Literal

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence

Origin = Literal["given", "greedy", "drawn"]


class RandomWalk:
    """Steps of an engine with something done between two of them.

    Args:
        core: the engine.
        seed: of all that happens.
        vocab_size: tokens are below it.
    """

    def __init__(self, core: EngineCore, seed: int, vocab_size: int) -> None:
        self.core = core
        self.did: Counter[str] = Counter()
        """What was done, how often."""
        self._source = random.Random(seed)
        self._vocab_size = vocab_size
        self._is_large, self._num_asked = False, 0
        self._beginning = self._text(40)
        self._origins: dict[int, list[Origin]] = {}

    def crowd(self, size: int, num_steps: int) -> None:
        """So many steps with about `size` chats under way; the texts of many are short, so that all find room."""
        self._is_large = size >= 16
        for _ in range(num_steps):
            self._note_new_tokens()
            if self._source.random() < 0.3:
                self._do_something()
            self._bring_to(size)
            self.core.step()
        self._note_new_tokens()

    def finish(self) -> list[Sequence]:
        """Let all replies end; returns the chats that are there."""
        while self.core.has_work:
            self.core.step()
        self._note_new_tokens()
        self.core.check_integrity()
        return list(self.core.sequences.values())

    def chosen(self, seq_id: int) -> list[int]:
        """Places of a chat's tokens that were chosen as the most likely ones."""
        return [place for place, origin in enumerate(self._origins[seq_id]) if origin == "greedy"]

    def _do_something(self) -> None:
        sequences = list(self.core.sequences.values())
        if not sequences:
            return
        sequence = self._source.choice(sequences)
        action = self._source.choice([self._fork, self._cut_back, self._stop, self._close])
        action(sequence)
        self.did[action.__name__.strip("_")] += 1

    def _fork(self, sequence: Sequence) -> None:
        child = self.core.fork(sequence.seq_id)
        self._origins[child] = list(self._origins[sequence.seq_id])

    def _cut_back(self, sequence: Sequence) -> None:
        length = self._source.randint(1, len(sequence))
        self.core.rewind(sequence.seq_id, length)
        del self._origins[sequence.seq_id][length:]
        self._ask(sequence.seq_id, self._text(self._source.choice([1, 2, 20])))

    def _stop(self, sequence: Sequence) -> None:
        self.core.stop(sequence.seq_id)

    def _close(self, sequence: Sequence) -> None:
        self.core.close(sequence.seq_id)
        del self._origins[sequence.seq_id]

    def _bring_to(self, size: int) -> None:
        busy = [seq for seq in self.core.sequences.values() if seq.status != "parked"]
        for sequence in busy[size:]:
            self.core.stop(sequence.seq_id)
        idle = [seq for seq in self.core.sequences.values() if seq.status == "parked" and len(seq) < 150]
        for _ in range(size - len(busy)):
            if idle and not self._is_large and self._source.random() < 0.5:
                self._ask(idle.pop().seq_id, self._text(self._source.choice([1, 3, 17])))
            else:
                self._open()

    def _open(self) -> None:
        seq_id = self.core.open()
        self._origins[seq_id] = []
        if self._is_large:
            self._ask(seq_id, self._text(self._source.choice([1, 5, 12])))
            return
        prompt = self._text(self._source.choice([1, 5, 16, 30, 90]))
        self._ask(seq_id, self._beginning + prompt if self._source.random() < 0.3 else prompt)

    def _ask(self, seq_id: int, token_ids: list[int]) -> None:
        self._origins[seq_id] += ["given"] * len(token_ids)
        length = self._source.choice([25, 40] if self._is_large else [2, 6, 16])
        greedy = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
        drawn = SamplingParams(temperature=0.8, max_tokens=length, ignore_eos=True, seed=seq_id)
        of_few = SamplingParams(temperature=0.8, top_k=6, max_tokens=length, ignore_eos=True, seed=seq_id)
        params = (greedy, drawn, of_few)[self._num_asked // 3 % 3]  # three in a row of each
        self.core.extend(seq_id, token_ids, params)
        self._num_asked += 1

    def _note_new_tokens(self) -> None:
        for seq_id, sequence in self.core.sequences.items():
            origins = self._origins[seq_id]
            kind: Origin = "greedy" if sequence.sampling_params.temperature == 0 else "drawn"
            origins += [kind] * (len(sequence) - len(origins))

    def _text(self, length: int) -> list[int]:
        return self._source.choices(range(self._vocab_size), k=length)
