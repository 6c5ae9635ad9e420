"""All groups of an engine: what becomes of them with every step.

The engine calls `take_in` with what came back from the model, before that is committed, and `carry_out` once the
step was told, where there may be something to be done (`are_due`). Both cost nothing while there are no groups.
"""

from collections.abc import Callable
from collections.abc import Sequence as Items

from pagedchat.cache_events import SequenceGrouped
from pagedchat.engine.groups.answers import AnswerGroup
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.groups.beams import BeamGroup, begin_search
from pagedchat.engine.groups.room import check_room, check_search
from pagedchat.engine.groups.search import BeamSearch, Choice
from pagedchat.engine.groups.verbs import Verbs
from pagedchat.engine.output import (
    DecodeRun,
    ModelRunnerOutput,
    RunningSearch,
    ScheduledSequence,
    SchedulerOutput,
)
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError


class Groups:
    """Those whose sequences wait to be forked, and those that search.

    Args:
        verbs: the engine.
        chosen_by_runner: whether its runner chooses the tokens of beams, where it can (`DecodeRun.searches`).
    """

    def __init__(self, verbs: Verbs, *, chosen_by_runner: bool = False) -> None:
        self._verbs = verbs
        self._chosen_by_runner = chosen_by_runner
        self._run: DecodeRun | None = None
        """Of which it is known whose beams are in it."""
        self._in_run: list[BeamGroup] = []
        """Those of which the runner is told."""
        self.awaited: list[AnswerGroup] = []
        """With a prompt that is not computed yet."""
        self.searches: dict[int, BeamGroup] = {}
        """By their numbers."""
        self._at_work = False

    # --- what is asked ------------------------------------------------------------------------------

    def check_answers(self, count: int, num_prompt_tokens: int) -> None:
        """Whether so many answers to one prompt can be under way.

        Raises:
            RequestError: the pool cannot hold so many.
        """
        if count > 1:
            check_room("n", count, num_prompt_tokens, self._verbs.limits)

    def ask_answers(self, first: Sequence) -> None:
        """`first` was asked for several answers; the others follow once the prompt is computed."""
        group = AnswerGroup(first)
        first.group = group
        self.awaited.append(group)
        self._verbs.tell(SequenceGrouped(first.seq_id, group.group_id, "answers", first.sampling_params.n))

    def search(self, prompt_token_ids: list[int], params: BeamSearchParams, *, for_seq_id: int = -1) -> BeamGroup:
        """Begin a beam search, of which reports say for which sequence it is.

        Raises:
            RequestError: a prompt that cannot be served, or too many beams, or tokens, for model and pool; nothing
                has changed then.
        """
        limits = self._verbs.limits
        search = BeamSearch(params, frozenset() if params.ignore_eos else limits.eos_token_ids)
        check_search(params, search.num_choices, len(prompt_token_ids), limits)
        group = begin_search(self._verbs, prompt_token_ids, params, search, for_seq_id)
        self.searches[group.group_id] = group
        return group

    def end(self, group: BeamGroup) -> None:
        """Break a search off: its beams give back what they have. One that is over stays as it is."""
        if self.searches.pop(group.group_id, None) is group:
            self._do(lambda: group.end(self._verbs))

    def check_free(self, seq: Sequence) -> None:
        """Whether others than its group may change a sequence.

        Raises:
            RequestError: it is a beam of a search.
        """
        if not self._at_work and seq.group is not None and seq.group.group_id in self.searches:
            raise RequestError(
                f"Sequence {seq.seq_id} is a beam of search {seq.group.group_id}.", "End the search as a whole."
            )

    # --- a step -------------------------------------------------------------------------------------

    @property
    def are_due(self) -> bool:
        """Whether `carry_out` may have something to do; the engine looks at both by itself, in every step."""
        return bool(self.searches or self.awaited)

    def tell_runner(self, batch: SchedulerOutput, *, may_choose: bool) -> None:
        """Say that beams may be in a batch, and of which searches all of them are in its run."""
        batch.searches, run = True, batch.run
        if run is None or run is self._run or not (may_choose and self._chosen_by_runner):
            return
        self._run, self._in_run = run, []
        place_of = {id(part.sequence): place for place, part in enumerate(batch.scheduled)}
        found = [(search, search.are_placed(place_of)) for search in self.searches.values()]
        if all(found_all is not None for _, found_all in found):
            self._in_run = [search for search, found_all in found if found_all]
        run.searches = list[RunningSearch](self._in_run)

    def take_in(
        self, scheduled: Items[ScheduledSequence], output: ModelRunnerOutput, run: DecodeRun | None
    ) -> bool:
        """What came back for beams; their tokens in `output` are replaced by what they go on with.

        Returns:
            Whether the next batch does not follow from this one: tokens may be others than a runner expects.
        """
        if output.beams is not None:
            for group, ranked in zip(self._in_run, output.beams, strict=True):
                group.decide_by(ranked, output, moved=output.beams_moved)
            return False
        for group in self.searches.values():
            group.forget_places()
        told: dict[int, BeamGroup] = {}
        for place, part in enumerate(scheduled):
            of_part = part.sequence.group
            if part.samples and isinstance(of_part, BeamGroup):
                of_part.take_in(part.sequence, place, _choices(output, place))
                output.token_ids[place] = []
                told[of_part.group_id] = of_part
        for group in told.values():
            group.decide(output.token_ids)
        return bool(told) and (run is not None or not self._chosen_by_runner)

    def carry_out(self) -> None:
        """Forks and ends that follow from the step before, told with the next one."""
        self._do(self._carry_out)

    def _carry_out(self) -> None:
        if self.awaited:
            self.awaited = [group for group in self.awaited if not group.is_off(self._verbs)]
            for group in [group for group in self.awaited if group.is_due]:
                self.awaited.remove(group)
                group.fork_others(self._verbs)
        for search in list(self.searches.values()):
            search.carry_out(self._verbs)
            if search.is_over:
                del self.searches[search.group_id]

    def _do(self, action: Callable[[], None]) -> None:
        self._at_work = True
        try:
            action()
        finally:
            self._at_work = False


def _choices(output: ModelRunnerOutput, place: int) -> list[Choice]:
    """The most likely next tokens of a beam, which are the group's alone from now on."""
    logprobs = output.logprobs or []
    [told], logprobs[place] = logprobs[place], []
    return list(zip(told.token_ids[1:], told.logprobs[1:], strict=True))  # before them is the one that was sampled
