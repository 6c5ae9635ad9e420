"""Messages survive the wire, whatever pieces they arrive in; garbage is told from messages."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.chat.template import ChatPrompt
from pagedchat.chat.turns import Turn
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingOverrides, SamplingParams
from pagedchat.outputs import CompletionOutput, Logprob, RequestOutput
from pagedchat.service import commands as cmd
from pagedchat.service import wire
from pagedchat.service.wire import (
    HEADER,
    MAX_FRAME,
    Configure,
    FrameWriter,
    NotSendableError,
    WireError,
    command_reader,
    event_reader,
)
from pagedchat.step_batch import BatchEntry
from pagedchat.structured.params import StructuredOutputsParams
from tests.service.fake_engine import ready_info

EVERY_PARAMETER = SamplingParams(
    n=2, best_of=3, temperature=1, stop=["x"], stop_token_ids=[7], seed=2**63, logprobs=5, prompt_logprobs=0,
    logit_bias={3: -1.5}, bad_words=["no"], output_kind=RequestOutputKind.DELTA,
)  # fmt: skip
FORMED = SamplingParams(structured_outputs=StructuredOutputsParams(json={"type": "object"}))
CHAT = ChatPrompt(
    messages=[{"role": "user", "content": "é"}, {"role": "assistant", "content": "", "tool_calls": [{"id": None}]}],
    tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    chat_template_kwargs={"enable_thinking": False},
)
OUTPUT = RequestOutput(
    request_id="3",
    prompt=None,
    prompt_token_ids=[5, 6],
    outputs=[
        CompletionOutput(
            index=1,
            text="é",
            token_ids=[7],
            finish_reason="stop",
            stop_reason=7,
            cumulative_logprob=-0.5,
            logprobs=[{7: Logprob(-0.5, 1, "é"), 8: Logprob(-1.5, 2, None)}],
        )
    ],
    finished=True,
    num_cached_tokens=1,
    prompt_logprobs=[None, {6: Logprob(-2.0, 9, "x")}],
)
COMMANDS = [
    Configure(EngineConfig(model=ModelConfig(model="a/b"), cache=CacheConfig(num_blocks=7))),
    cmd.Generate(1, 2, [Turn("user", "日本 \x1b[31m")], SamplingOverrides(temperature=0.5, stop=["x"]), True),
    cmd.Generate(1, 2, [], SamplingOverrides(logprobs=5), begun=[7, 8], begun_text=b"\xf0\x9f"),
    cmd.Generate(1, 3, [], SamplingOverrides(), beam_width=4),
    cmd.Fork(1, 2, 3),
    cmd.Stop(1),
    cmd.Close(1),
    cmd.AddRequest(1, "é", EVERY_PARAMETER),
    cmd.AddRequest(2, [5, 6]),
    cmd.AddRequest(3, CHAT, FORMED),
    cmd.AbortRequests([1, 2]),
    cmd.Coming(48),
    cmd.Tokenize(4, "é", add_special_tokens=False),
    cmd.Tokenize(5, CHAT),
    cmd.Detokenize(6, [5, 6]),
    cmd.Focus(1),
    cmd.Pause(),
    cmd.Resume(),
    cmd.StepOnce(5),
    cmd.SetPace(0.5),
    cmd.SetLimit(12),
    cmd.Pin(3),
    cmd.Unpin(None),
    cmd.Evict(4),
    cmd.FlushCache(),
    cmd.TellCache(),
    cmd.TellSequences(100),
    cmd.Shutdown(),
]
REPORT = ev.StepReport(
    3,
    0.5,
    [BatchEntry(1, 4, 0, [9])],
    [
        ce.SequenceOpened(1),
        ce.SequenceExtended(1, [1, 2], 0),
        ce.PrefixHit(1, [4], 2),
        ce.BlockAllocated(1, 5),
        ce.BlockCached(5, b"\x00\xff", b"\x01"),
        ce.PrefixMissed(1, 17, 4, 5, 6),
        ce.BlockPinned(5),
        ce.BlocksWithheld([7, 8]),
        ce.BlocksReturned([8, 7]),
        ce.BlockUnpinned(5),
        ce.SwappedOut(1, [5], [0], [True]),
        ce.BeamsScored([1, 2], [-0.5, -1.25]),
        ce.SequenceParked(1, "length"),
    ],
    ev.PoolCounts(10, 8, 0, 2, 1, 3, 0, 0),
    ev.QueueLengths(0, 1, 0, 2),
    ev.Timings(0.1, 0.0, 0.3),
    ev.Counters(steps=3),
)
EVENTS = [
    ev.TextDelta(1, 2, "é", 3, [ev.ToldToken(0, 1, 2, [5, 6], [b"\xc3", b"x"], ev.packed([-1.5, -0.1]))], 4),
    ev.TextDelta(1, 2, "", 3, anew=True),
    ev.LoadProgress("download", "model.safetensors", 1, 10, "B"),
    ready_info(sampling_defaults={"temperature": 0.7}, attention_backend="cuda", attention_reason="Why."),
    ev.EngineFailed("No.", "Do."),
    ev.TextDelta(1, 2, "é", 3),
    ev.RequestStarted(1, 2, 3, 0),
    ev.RequestFinished(1, 2, "stop", 3, 0, 4, 0.1, 0.2),
    ev.RequestFailed(1, 2, "No.", ""),
    ev.RequestWaits(1, 2, "It is busy."),
    ev.ServerModels("http://a", ["b", "c"]),
    ev.ServerFigures(running=1.0, waiting=0.0),
    ev.RequestOutputs([3], [OUTPUT]),
    ev.RequestRefused(4, "No.", "Do.", "value"),
    ev.Tokenized(5, [1, 2]),
    ev.Detokenized(6, "é"),
    ev.Steps([REPORT, REPORT]),
    ev.RunState(True, 0.5, 12),
    ev.TokenTexts([5, 6], [b"a", b"\xe2\x82"]),
    ev.EngineNotice("No.", "Do.", failed=True),
    ev.IntegrityBroken(4, "1 and 2 differ", "dump.json"),
    ev.EngineDied(-9, "log", True),
    ev.RequestWaits(1, 2, "The server is busy."),
    ev.ServerModels("lab", ["a", "b"]),
    ev.ServerFigures(running=1.0),
    ev.CacheKeyframe(b"state"),
    ev.SequencesTold([ev.SequenceFigures(1, "running", 20, 2, 1)], 3),
    ev.ReplyKept(1, 2, 3, [("user", "é")], "so far", False),
    ev.Attachment("127.0.0.1:8000", "it does not answer"),
]

NESTED = b"\x97\xa5Steps\x90" + b"\x91" * 50_000 + b"\xc0" * 5
"""An event with a field too many, deeper than any reader goes down."""


def stream(messages) -> bytes:
    writer = FrameWriter()
    return b"".join(bytes(writer.frame(message)) for message in messages)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000)))
def test_messages_are_put_together_from_any_pieces(cuts):
    for messages, reader in ((COMMANDS, command_reader()), (EVENTS, event_reader())):
        data = stream(messages)
        edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        pieces = [data[a:b] for a, b in pairwise(edges)]
        assert [message for piece in pieces for message in reader.feed(piece)] == messages
        reader.finish()


def test_every_event_and_command_is_covered():
    def names(union):
        return {kind.__name__ for kind in union.__args__}

    assert {type(event).__name__ for event in EVENTS} == names(ev.EngineEvent)
    assert {type(command).__name__ for command in COMMANDS} == names(cmd.AnyCommand) | {"Configure"}


def test_connection_cut_inside_a_frame_is_told():
    reader = event_reader()
    assert list(reader.feed(stream(EVENTS[:1])[:-1])) == []
    with pytest.raises(WireError, match="inside a message"):
        reader.finish()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (HEADER.pack(MAX_FRAME + 1), "at most"),
        (HEADER.pack(3) + b"\xc1\xc1\xc1", "not a message"),
        (HEADER.pack(3) + msgspec.msgpack.encode(["?"]), "not a message"),
        (HEADER.pack(3) + b"\x91\xa1\x80", "not a message"),
        (HEADER.pack(len(NESTED)) + NESTED, "not a message"),
        (b"Traceback (most recent call last)", "at most|not a message"),
    ],
)
def test_garbage_is_told_from_messages(data, match):
    with pytest.raises(WireError, match=match):
        list(event_reader().feed(data))


def test_messages_before_garbage_are_delivered():
    feed = event_reader().feed(stream(EVENTS[:2]) + HEADER.pack(MAX_FRAME + 1))
    assert [next(feed), next(feed)] == EVENTS[:2]
    with pytest.raises(WireError):
        next(feed)


def unsendable_config() -> EngineConfig:
    """As none can be made: configs are checked."""
    config = EngineConfig(model=ModelConfig())
    object.__setattr__(config.model, "model", "\udcff")
    return config


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (cmd.SetLimit(2**64), "“SetLimit” cannot be passed on: a number has more than 64 bits."),
        (cmd.SetPace({1: 2} | {3: object()}), "“SetPace” cannot be passed on: "),
        (
            cmd.Generate(1, 2, [Turn("user", "x" * 2000)], SamplingOverrides()),
            "The prompt and its settings cannot be passed on: it takes 20",
        ),
        (
            Configure(unsendable_config()),
            "The engine's settings cannot be passed on: some characters are no text.",
        ),
    ],
)
def test_message_without_bytes_is_one_sentence_and_the_next_one_is_sent(message, sentence, monkeypatch):
    monkeypatch.setattr(wire, "MAX_FRAME", 1000)
    writer = FrameWriter()
    with pytest.raises(NotSendableError) as raised:
        writer.frame(message)
    assert raised.value.message.startswith(sentence)
    assert list(command_reader().feed(bytes(writer.frame(cmd.Pin(3))))) == [cmd.Pin(3)]
