"""Whatever happens, what is said is so: sentences, counters, header, panes, metrics have the mirror's numbers.

Hypothesis drives an engine and the view through any workload; a witness of their reports says what must be read.
"""

import re
from contextlib import suppress
from threading import Lock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagedchat import cache_events as ce
from pagedchat.chat.session import ChatSession
from pagedchat.config import SpeculationConfig
from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.mirror import CacheMirror
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.speculation.draft_model import DraftRunner
from pagedchat.errors import RequestError
from pagedchat.events import RunState, StepReport, Steps
from pagedchat.metrics.collector import MetricsCollector
from pagedchat.metrics.fold import MetricsFold
from pagedchat.tui.chat.header import header_line
from pagedchat.tui.chat.pane_title import pane_footnote, pane_title
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.standing import PAUSED, standing
from pagedchat.view.options import UiOptions
from pagedchat.view.sentences.figures import context_text, engine_text
from pagedchat.view.sentences.waiting import held_words
from pagedchat.view.stats_answer import StatsAnswer
from pagedchat.view.timeline.columns import PREEMPTED
from tests.scripted_reports import ScriptedEngine, SmallerRunner, ready
from tests.view.witness import MISFITS, Witness, numbers_in

LETTERS = {0: b" a", 1: b" b", 2: b" c", 7: b" d"}
"""Texts of all tokens that occur, without a digit in them."""
CONTEXT = 40
WIDTH = 300
TEXT = [0, 1, 2, 0, 0, 1, 1, 2, 2, 0, 2, 1, 0, 1, 0, 2, 1, 1, 0, 0]
TOKENS = st.builds(
    lambda length, tail: TEXT[:length] + tail, st.integers(0, 20), st.lists(st.integers(0, 2), max_size=3)
)
"""Prompts that begin alike."""


def letters(number: int) -> str:
    """A name without digits."""
    return (letters(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


class Broken:
    """A runner that is of no use any more."""

    def execute(self, batch):
        raise RuntimeError("the device does not answer")

    def check(self):
        raise RuntimeError("the device does not answer")


class Told(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(2, 14),
        num_host_blocks=st.sampled_from([0, 3, 14, 14]),
        block_size=st.sampled_from([1, 2, 4]),
        max_num_seqs=st.integers(1, 4),
        budget=st.sampled_from([2, 8, 64]),
        caching=st.sampled_from([True, True, False]),
        mode=st.sampled_from(["recompute", "swap"]),
        ahead=st.booleans(),
        drafts=st.sampled_from(["lookup", "model", "off"]),
    )
    def start(self, num_blocks, num_host_blocks, block_size, max_num_seqs, budget, caching, mode, ahead, drafts):
        self.engine = engine = ScriptedEngine(
            num_blocks=num_blocks,
            num_host_blocks=num_host_blocks,
            block_size=block_size,
            model_len=CONTEXT,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            enable_prefix_caching=caching,
            preemption_mode=mode,
            reserve_ahead=ahead,
            draft=DraftRunner(SmallerRunner(), CONTEXT) if drafts == "model" else None,
            speculation=SpeculationConfig(
                method=drafts,
                model="smaller" if drafts == "model" else None,
                num_speculative_tokens=3,
                prompt_lookup_min=1,
            ),
        )
        engine.core.scheduler.drafts.worth = None
        engine.view.token_texts.update(LETTERS)
        self.core, self.view, self.limits = engine.core, engine.view, engine.core.limits
        self.witness = Witness(CacheMirror(num_blocks, block_size, num_host_blocks), max_num_seqs, caching)
        self.desk = ChatDesk(lambda command: None, UiOptions())
        self.desk.context_limit = CONTEXT
        self.fold = MetricsFold()
        self.fold.fold(ready(self.limits))
        self.num_requests = 0
        self.all_lost: set[int] = set()
        """Sequences that lost what they had to a failed step; the timeline marks them as preempted ones."""

    # --- what is done -------------------------------------------------------------------------------

    def some(self, data, *statuses):
        beams = [seq_id for group in self.core.groups.searches.values() for seq_id in group.seq_ids]
        found = [s for s in self.core.sequences.values() if not statuses or s.status in statuses]
        found = [s for s in found if s.seq_id not in beams]
        return data.draw(st.sampled_from(found)).seq_id if found else None

    def chat(self, seq_id: int) -> ChatSession:
        chat = self.desk.get(seq_id)
        if chat is None:
            chat = ChatSession(seq_id, name=letters(seq_id))
            self.desk.chats.append(chat)
            self.view.labels[seq_id] = letters(seq_id)
        return chat

    def begin(self, seq_id: int) -> None:
        self.num_requests += 1
        chat = self.chat(seq_id)
        if chat.busy:
            chat.finish("abort")
        chat.ask("x", self.num_requests)
        chat.start()

    @rule(data=st.data(), new=st.booleans(), tokens=TOKENS, max_tokens=st.integers(1, 12))
    def ask(self, data, new, tokens, max_tokens):
        seq_id = None if new and len(self.core.sequences) < 6 else self.some(data, "parked")
        if seq_id is None:
            if len(self.core.sequences) >= 6:
                return
            seq_id = self.core.open()
        self.request(seq_id, tokens, max_tokens)

    def request(self, seq_id: int, tokens: list[int], max_tokens: int) -> None:
        self.chat(seq_id)
        try:
            self.engine.ask(seq_id, tokens, max_tokens)
        except RequestError:
            return
        self.begin(seq_id)

    @rule(data=st.data())
    def fork(self, data):
        seq_id = self.some(data)
        if seq_id is not None and len(self.core.sequences) < 6:
            child = self.core.fork(seq_id)
            self.chat(child)
            if self.core.sequences[child].status != "parked":
                self.begin(child)

    @rule(
        data=st.data(), cut=st.integers(0, 9), goes_on=st.booleans(), tail=st.lists(st.integers(0, 2), max_size=2)
    )
    def rewind(self, data, cut, goes_on, tail):
        seq_id = self.some(data)
        if seq_id is None:
            return
        length = max(0, len(self.core.sequences[seq_id]) - cut)
        self.core.rewind(seq_id, length)
        if goes_on and length + len(tail):
            self.tell_verbs()
            self.request(seq_id, tail, 3)

    @rule(data=st.data())
    def stop(self, data):
        seq_id = self.some(data, "waiting", "running", "swapped")
        if seq_id is not None:
            self.core.stop(seq_id)

    @rule(data=st.data(), sure=st.integers(0, 2))
    def close(self, data, sure):
        seq_id = self.some(data) if not sure else None
        if seq_id is not None:
            self.core.close(seq_id)
            self.tell_verbs()
            self.desk.chats.remove(self.chat(seq_id))
            del self.view.labels[seq_id]

    @rule(tokens=TOKENS, max_tokens=st.integers(1, 7))
    def search(self, tokens, max_tokens):
        """Two beams, which no chat shows."""
        if not self.core.groups.searches:
            with suppress(RequestError):
                self.core.groups.search(tokens, BeamSearchParams(2, max_tokens))

    @rule(tokens=TOKENS.filter(len))
    def answers(self, tokens):
        if len(self.core.sequences) < 5:
            first = self.core.open()
            with suppress(RequestError):
                self.core.extend(first, tokens, SamplingParams(n=2, max_tokens=4))

    @rule(num_blocks=st.none() | st.integers(1, 14))
    def limit(self, num_blocks):
        self.control("limit", lambda: self.core.controls.set_limit(num_blocks))
        self.view.apply(RunState(self.view.live.paused, 0.0, self.core.controls.limit))
        assert self.view.limit in (None, self.core.blocks.pool.num_usable)

    @rule(data=st.data(), what=st.sampled_from(["pin", "unpin", "evict"]))
    def touch(self, data, what):
        pool, findable = self.core.blocks.pool, self.core.blocks.cache.block_ids
        blocks = sorted({"pin": findable, "unpin": pool.pinned, "evict": pool.cached_blocks}[what])
        block_id = data.draw(st.sampled_from(blocks)) if blocks else 0
        self.control(what, lambda: getattr(self.core.controls, what)(block_id))

    @rule()
    def flush(self):
        self.control("flush", self.core.controls.flush)

    def control(self, what, action):
        self.tell_verbs()
        self.witness.acting = what
        with suppress(RequestError):
            action()
        self.tell_verbs()
        self.witness.acting = "step"

    @rule(paused=st.booleans())
    def pause(self, paused):
        self.view.live.set_paused(paused)

    @precondition(lambda self: self.core.has_work)
    @rule()
    def drain(self):
        self.step(60)

    @precondition(lambda self: self.core.has_work)
    @rule(count=st.integers(1, 8))
    def step_on(self, count):
        self.step(count)

    def step(self, count: int) -> None:
        for _ in range(count):
            if self.core.has_work:
                self.tell_verbs()
                self.engine.now += 0.05
                self.tell(self.core.step())
                self.witness.check_reasons()

    @precondition(lambda self: self.core.has_work)
    @rule()
    def fail(self):
        """A step that raises before anything of it is done; whoever was to get blocks from it loses what it had."""
        runner = self.core.runner
        self.tell_verbs()
        self.engine.now += 0.05
        self.core.runner = Broken()
        try:
            self.tell(self.core.step())  # nobody could run
        except RuntimeError:
            self.witness.totals["steps"] += 1  # it was begun
        self.core.runner = runner
        self.tell_verbs()

    # --- what is said of it -------------------------------------------------------------------------

    @invariant()
    def tell_verbs(self):
        if hasattr(self, "engine") and (report := self.core.flush()) is not None:
            self.tell(report)

    def tell(self, report: StepReport) -> None:
        for event in report.events:
            for seq_id in (getattr(event, "seq_id", 0), getattr(event, "child_id", 0)):
                self.view.labels.setdefault(seq_id, letters(seq_id))
        num_before = self.view.num_lines
        expected = self.witness.watch(report)
        self.engine.tell(report)
        self.fold.fold(Steps([report]))
        for event in report.events:
            if isinstance(event, ce.SequenceParked) and (chat := self.desk.get(event.seq_id)) and chat.busy:
                chat.finish("stop")
        self.check_lines(expected, self.view.recent_events(self.view.num_lines - num_before))
        self.check_pool(report)
        self.check_counters(report)
        self.check_header()
        self.check_texts()
        self.check_chats()
        self.check_metrics()

    def check_lines(self, expected, lines):
        assert [line.kind for line in lines] == [item.kind.partition(" ")[0] for item in expected]
        for item, line in zip(expected, lines, strict=True):
            found = numbers_in(line.text)
            assert found[: 2 if item.kind == "STEP" else None] == item.numbers, (item, line.text)
            assert item.words in line.text, (item, line.text)
        preempted = {line.seq_ids[0] for line in lines if line.kind == "PREEMPT"}
        lost = {line.seq_ids[0] for line in lines if line.kind == "LOST"}
        self.all_lost |= lost
        if preempted and (columns := self.view.columns.columns):
            marked = {seq_id for seq_id, mark in columns[-1].marks.items() if mark == PREEMPTED}
            assert preempted <= marked <= preempted | self.all_lost

    def check_pool(self, report):
        pool, queues = self.witness.pool(), self.witness.queues()
        assert {name: getattr(report.pool, name) for name in pool} == pool
        for status in ("waiting", "running", "swapped", "parked"):
            assert getattr(report.queues, status) == queues[status]

    def check_counters(self, report):
        totals = self.witness.totals
        for name in (
            "steps", "preemptions", "swaps_out", "swaps_in", "copies", "evictions", "prefix_hits", "prefill_tokens",
            "decode_tokens", "kept_tokens", "drafts", "draft_tokens", "accepted_tokens",
        ):  # fmt: skip
            assert getattr(report.counters, name) == totals[name], name
        assert report.counters.prefix_queries >= totals["prefix_hits"]

    def check_header(self):
        pool, line = self.witness.pool(), header_line(self.view, "model", WIDTH).plain
        usable = pool["total"] - pool["withheld"]
        running = self.witness.queues()["running"]
        assert f"free {pool['free']}/{usable}" in line
        assert f"]{pool['in_use'] / usable if usable else 0:.0%}" in line
        assert (f"cached {pool['cached']}" in line) == bool(pool["cached"])
        assert f"shared {pool['shared']}" in line
        assert f"step {self.witness.totals['steps']}" in line
        limit = self.view.limit
        assert ("limit" in line) == (limit is not None)
        assert limit is None or f"limit {limit} " in line
        if not running:
            assert "batch 0" in line
            assert " 0 tok/s" in line
        assert "√" in line

    def check_texts(self):
        pool, totals, lines = self.witness.pool(), self.witness.totals, engine_text(self.view.live).split("\n")
        last = self.view.live.mirror.last
        steps = numbers_in(lines[1])
        assert [steps[0], *steps[2:]] == [totals["steps"], totals["prefill_tokens"], totals["decode_tokens"]]
        assert numbers_in(lines[2]) == [totals["kept_tokens"], totals["prefix_hits"], last.counters.prefix_queries]
        names = ("free", "cached", "in_use", "shared", "withheld", "pinned", "total")
        assert numbers_in(lines[3]) == [pool[name] for name in names]
        names = ("preemptions", "copies", "evictions", "swaps_out", "swaps_in")
        assert numbers_in(lines[5]) == [totals[name] for name in names]
        drafted, accepted = totals["draft_tokens"], totals["accepted_tokens"]
        told = [drafted, accepted, drafted - accepted] if drafted else []
        assert numbers_in(" ".join(lines[6:])) == told

    def check_chats(self):
        answer = StatsAnswer(self.view, self.desk, "model")()
        pool, queues = self.witness.pool(), self.witness.queues()
        assert {name: answer["pool"][name] for name in pool} == pool
        busy = queues["waiting"] + queues["swapped"]
        state = "running" if queues["running"] else "waiting" if busy else "idle"
        assert answer["state"] == ("paused" if self.view.live.paused else state)
        for chat, told in zip(self.desk.chats, answer["chats"], strict=True):
            if (seq := self.witness.mirror.sequences.get(chat.session_id)) is not None:
                self.check_chat(chat, seq, told)

    def check_chat(self, chat, seq, told):
        counts, size = self.witness.mirror.ref_counts, self.limits.block_size
        shared = sum(counts[block_id] > 1 for block_id in seq.block_table)
        own, held = len(seq.block_table) - shared, len(seq.host_block_table)
        assert (told["tokens"], told["blocks_own"], told["blocks_shared"]) == (len(seq.token_ids), own, shared)
        title = pane_title(chat, self.view, CONTEXT, WIDTH, active=True, rule="").plain
        found = re.search(r"ctx (\d+)/(\d+) · (\d+) in (\d+) blk(?:, (\d+) shr)?(?: · (\d+) swapped)?", title)
        assert found is not None, title
        numbers = [int(number or 0) for number in found.groups()]
        assert numbers == [len(seq.token_ids), CONTEXT, seq.num_computed, own + shared, shared, held]
        assert seq.num_computed <= (own + shared + held) * size
        waits = seq.status in ("waiting", "swapped")
        held_back = self.witness.shown.get(chat.session_id)
        stands = standing(chat, self.view.live)
        assert stands.state == told["status"] == ("waiting" if waits else "running" if chat.busy else "idle")
        if waits:
            why = PAUSED if self.view.live.paused else held_words(held_back)
            assert stands.why == told["waits_because"] == why
            footnote = pane_footnote(chat, self.view, WIDTH).plain
            assert footnote.startswith(f"waiting: {why}")
            self.check_cure(footnote.removeprefix(f"waiting: {why}"), held_back)
            assert "t/s" not in title
        context = numbers_in(context_text(chat, self.view, CONTEXT).split("\n")[0])
        assert [context[0], context[1], context[3]] == [len(seq.token_ids), CONTEXT, seq.num_computed]

    def check_cure(self, words, held):
        """Where blocks are wanted and nobody who runs will give them: what would."""
        pool, cause = self.witness.pool(), held.cause if held and not self.view.live.paused else ""
        wanted = cause in MISFITS or (cause == "blocks" and not self.witness.queues()["running"])
        cures = [
            cure for cure, count in (("/limit off", "withheld"), ("/unpin", "pinned")) if wanted and pool[count]
        ]
        assert words == (f" · more with {' or '.join(cures)}" if cures else "")

    def check_metrics(self):
        families = MetricsCollector(self.fold, Lock()).collect()
        values = {sample.name: sample.value for family in families for sample in family.samples}
        by_state = {
            sample.labels["state"]: sample.value
            for family in families
            for sample in family.samples
            if "state" in sample.labels
        }
        pool, queues, totals = self.witness.pool(), self.witness.queues(), self.witness.totals
        usable = pool["total"] - pool["withheld"]
        assert by_state == {name: pool[name] for name in ("free", "cached", "in_use", "withheld")}
        assert values["vllm:kv_cache_usage_perc"] == (pool["in_use"] / usable if usable else 0)
        assert values["vllm:num_requests_running"] == queues["running"]
        assert values["vllm:num_requests_waiting"] == queues["waiting"] + queues["swapped"]
        assert values["pagedchat:num_sequences_parked"] == queues["parked"]
        assert values["vllm:num_preemptions_total"] == totals["preemptions"]
        assert values["vllm:spec_decode_num_drafts_total"] == totals["drafts"]
        assert values["vllm:spec_decode_num_draft_tokens_total"] == totals["draft_tokens"]
        assert values["vllm:spec_decode_num_accepted_tokens_total"] == totals["accepted_tokens"]
        assert values["vllm:prefix_cache_hits_total"] == totals["prefix_hits"]
        assert values["pagedchat:prompt_tokens_kept_total"] == totals["kept_tokens"]
        assert values["pagedchat:blocks_copied_total"] == totals["copies"]
        assert values["pagedchat:blocks_evicted_total"] == totals["evictions"]
        assert values["pagedchat:prefill_tokens_total"] == totals["prefill_tokens"]


TestTold = Told.TestCase
TestTold.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_who_swaps_in_has_what_it_finds_before_others_are_evicted_for_it() -> None:
    """The least recently used block but those is the one that goes. Found by chance; the sentence is held to it."""
    told = Told()
    told.start(
        num_blocks=4, num_host_blocks=14, max_num_seqs=1, caching=True, mode="swap", ahead=True, budget=2,
        block_size=4, drafts="off",
    )  # fmt: skip
    core = told.core
    told.request(core.open(), TEXT[:6], 4)
    told.drain()
    told.flush()
    for tokens in ([0, 1], [0, 1, 2], [0]):
        told.answers(tokens)
        told.tell_verbs()
    core.stop(2)
    told.tell_verbs()
    told.request(1, [], 1)
    told.drain()
    assert told.witness.totals["evictions"] > 1
    assert core.stats().swaps_in > 0
