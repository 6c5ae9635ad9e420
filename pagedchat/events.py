"""The typed stream from the engine to the outside: what a step did, how loading goes, what a chat got.

Knows neither the engine nor the screen; what happens to the cache is in `cache_events.py`.
"""

import struct
from typing import Any, Literal

import msgspec

from pagedchat.cache_events import CacheEvent, Event, FinishReason, SequenceStatus
from pagedchat.outputs import RequestOutput
from pagedchat.step_batch import Batch

# --- one step ---------------------------------------------------------------------------------------


class PoolCounts(Event, frozen=True):
    """Blocks by state after the step; `free + cached + in_use + withheld == total`."""

    total: int
    free: int
    cached: int
    in_use: int
    shared: int
    """Blocks in use with a ref count of two or more."""
    table_entries: int
    """Entries of all device block tables together; minus `in_use` it is what sharing saves."""
    host_total: int
    host_in_use: int
    withheld: int = 0
    """Blocks that a limit keeps out of reach."""
    pinned: int = 0
    """Blocks that are not evicted; without an owner they count as cached."""

    @property
    def usable(self) -> int:
        """Blocks that a limit leaves to the pool."""
        return self.total - self.withheld

    @property
    def usage(self) -> float:
        """The share of the usable blocks that is in use, 0 to 1."""
        return self.in_use / self.usable if self.usable else 0.0


class QueueLengths(Event, frozen=True):
    """How many sequences stand where after the step."""

    waiting: int
    running: int
    swapped: int
    parked: int


class Timings(Event, frozen=True):
    """Where the step's time went, in seconds."""

    schedule: float = 0.0
    copy: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    update: float = 0.0
    launch: float = 0.0
    """Before the forward pass: laying the batch out and handing it to the device."""
    attention: float = 0.0
    """Of `forward`, what attention took; the rest is mostly matrix products. 0 where not measured."""
    draft: float = 0.0
    """A draft model's passes, before the forward pass."""

    @property
    def total(self) -> float:
        """All phases together."""
        return self.schedule + self.draft + self.copy + self.launch + self.forward + self.sample + self.update


class Counters(Event, frozen=True):
    """Totals since the engine started."""

    steps: int = 0
    prefix_queries: int = 0
    """Tokens looked up in the prefix cache, those of sequences that lost them among them."""
    prefix_hits: int = 0
    """Of those, tokens found."""
    preemptions: int = 0
    """Times that blocks were taken from a sequence, running or not: as many as `SequencePreempted` were told."""
    swaps_out: int = 0
    """Blocks copied to host memory."""
    swaps_in: int = 0
    copies: int = 0
    """Blocks copied by copy-on-write."""
    evictions: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    kept_tokens: int = 0
    """Prompt tokens that their sequences still had from turns before, and that nobody looked up."""
    drafts: int = 0
    """Times that tokens of a sequence were guessed, to be verified in one step."""
    draft_tokens: int = 0
    """Tokens guessed so."""
    accepted_tokens: int = 0
    """Of those, tokens that the model would have chosen itself."""


class StepReport(Event, frozen=True):
    """All that happened since the report before: verbs (fork, close, ...) and at most one step.

    `batch` is empty where only verbs ran. Cache events stand in the order in which they happened.
    """

    step: int
    """Number of the last step that ran; the first is 1."""
    time: float
    """Seconds since the engine started, at the end of the step."""
    batch: Batch
    events: list[CacheEvent]
    pool: PoolCounts
    queues: QueueLengths
    timings: Timings
    counters: Counters
    rank_seconds: tuple[float, ...] = ()
    """Where the model is cut over several processes, what the batch took each of them; of all but the first it is
    the last batch of which they have said so. Not kept in traces."""

    @property
    def num_parts(self) -> int:
        """How much it weighs: its batch entries and cache events, and one."""
        return 1 + len(self.batch) + len(self.events)


# --- the engine process to the UI -------------------------------------------------------------------


class LoadProgress(Event, frozen=True):
    """How loading goes. `total` is 0 where it is not known; `unit` is "B", "tensors", "kernels" or ""."""

    stage: Literal["import", "download", "weights", "kernels", "profile", "cache", "warmup", "connect"]
    message: str
    done: int = 0
    total: int = 0
    unit: str = ""


class RankInfo(msgspec.Struct, frozen=True, array_like=True):
    """One of the processes that have a part of the model each."""

    device: str
    """For people."""
    memory: int
    """Bytes of its part of the cache: all ranks have the same blocks, and each has its heads of them."""


class ServerInfo(Event, frozen=True):
    """A server of somebody else's that answers in place of an engine of ours: it tells neither blocks nor steps."""

    name: str
    """What the user calls it, or its host and port."""
    url: str
    kind: str = ""
    """What it runs, where it says so: `vLLM`, `SGLang`, `llama.cpp`, `Ollama`, `pagedchat`."""
    models: tuple[str, ...] = ()
    """All that it serves."""
    continues: bool = False
    """Whether it is known to go on in the middle of a reply."""


class EngineReady(Event, frozen=True):
    """The engine takes prompts from now on; what was found out while loading."""

    model: str
    architecture: str
    num_parameters: int
    dtype: str
    device: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    block_size: int
    num_blocks: int
    num_host_blocks: int
    block_bytes: int
    """Bytes of one block: K and V of all layers."""
    chat_template: Literal["model", "plain"]
    """The checkpoint's own template, or the plain `User:/Assistant:` one for a base model."""
    sampling_defaults: dict[str, Any]
    """`SamplingParams` fields from the model's generation_config.json."""
    load_seconds: float
    attention_backend: Literal["cuda", "torch"] = "torch"
    """Our kernels, or plain torch."""
    attention_reason: str = ""
    """Why torch and not our kernels, in one sentence; empty where that was asked for or goes without saying."""
    quantization: str = ""
    """Of the weights: `"int8"`, or what the checkpoint calls it; empty: they are of `dtype`."""
    precision_reason: str = ""
    """Why they are in so few bits, in one sentence, with the option that turns it off; empty where that was asked
    for or goes without saying."""
    kv_cache_dtype: str = ""
    """Of keys and values: `"fp8"` or `"int8"`, one byte an element and a scale for each token and head, which
    `block_bytes` has in it; empty: they are of `dtype`."""
    ranks: tuple[RankInfo, ...] = ()
    """Where the model is cut over several processes, all of them; `block_bytes` is then what one of them has of a
    block."""
    server: ServerInfo | None = None
    """Who answers, where that is a server: then sizes and numbers of blocks are 0, and so is `max_model_len` where
    it is not told."""
    draft_model: str = ""
    """That guesses tokens for this one; empty: none does."""
    draft_block_bytes: int = 0
    """What it keeps of a block besides."""
    kernels: Literal["cuda", "cpu", "torch", ""] = ""
    """What the model's steps are made of: our kernels for a GPU or for a CPU, or torch's own; empty in recordings
    of before it was told."""


class EngineFailed(Event, frozen=True):
    """The engine could not start, for a reason the user can mend."""

    message: str
    hint: str


class ToldToken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One token of a reply: where it stands in the text, how likely it was, and what else might have come."""

    start: int
    """Its first character in the reply's text; a token may have only a part of a character, or none."""
    end: int
    """The one after its last."""
    rank: int
    """1: no token was likelier. 0: the reply was to begin with it, and no more is told of it."""
    token_ids: list[int]
    """Itself, then the most likely tokens in its place, as many as were asked for; it may be among them again."""
    texts: list[bytes]
    """What each of them stands for."""
    logprobs: bytes
    """The natural logarithms of their probabilities, by the model alone; little-endian float32, one after the
    other."""


def packed(logprobs: list[float]) -> bytes:
    """Numbers as `ToldToken.logprobs` has them: float32 is what they are worked out in."""
    return struct.pack(f"<{len(logprobs)}f", *logprobs)


def unpacked(logprobs: bytes) -> tuple[float, ...]:
    """What `packed` has packed."""
    return struct.unpack(f"<{len(logprobs) // 4}f", logprobs)


class TextDelta(Event, frozen=True):
    """More text of a running request (pieces since the last publish, joined)."""

    session_id: int
    request_id: int
    text: str
    num_tokens: int
    """Tokens generated so far in this request."""
    told: list[ToldToken] = msgspec.field(default_factory=list)
    """Where that was asked for, what is to be told of its tokens, one by one. A token may come before its text."""
    num_told: int = 0
    """Tokens of the reply before those in `told`, of which was told before."""
    anew: bool = False
    """The text is all of the reply: what was told before does not hold any more."""

    def then(self, more: "TextDelta") -> "TextDelta":
        """This one and the next as one."""
        if more.anew:
            return more
        told = [*self.told, *more.told] if more.told else self.told
        first = self.num_told if self.told else more.num_told
        text = self.text + more.text
        return TextDelta(self.session_id, self.request_id, text, more.num_tokens, told, first, self.anew)


class RequestStarted(Event, frozen=True):
    """The prompt was rendered and tokenised and its sequence extended."""

    session_id: int
    request_id: int
    num_prompt_tokens: int
    """Tokens of the whole conversation, prompt included."""
    num_cached_tokens: int
    """Of those, tokens whose KV the sequence already had before prefix matching."""


class RequestWaits(Event, frozen=True):
    """Nothing has come of a request for a while, and why: for the user to read until something comes."""

    session_id: int
    request_id: int
    message: str


class RequestFinished(Event, frozen=True):
    """A request is done; the sequence is parked."""

    session_id: int
    request_id: int
    reason: FinishReason
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens not computed again: kept by the sequence or found in the prefix cache."""
    num_tokens: int
    """Tokens generated."""
    time_to_first_token: float
    """Seconds from the command to the first token; not a number where the reply was told as a whole, so that nobody
    knows."""
    duration: float
    """Seconds from the command to the end."""
    num_found_tokens: int = 0
    """Of the cached ones, those found in the prefix cache; the sequence had kept the others."""


class RequestFailed(Event, frozen=True):
    """One request was refused, or an error ended it; the other sessions go on."""

    session_id: int
    request_id: int
    message: str
    hint: str


class RequestOutputs(Event, frozen=True):
    """What requests of programs have got since they were told last: of each one output, of the kind `DELTA`, and of
    those that asked for nothing before their end a single one.

    Prompts' tokens come with the first output of a request alone, and no output has a prompt's text.
    """

    request_ids: list[int]
    outputs: list[RequestOutput]


RefusalKind = Literal["value", "request", "engine"]


class RequestRefused(Event, frozen=True):
    """A request of a program is none, or ended by an error; it has no more outputs."""

    request_id: int
    message: str
    hint: str
    kind: RefusalKind = "request"
    """"value": something that can never be; "request": this engine cannot serve it; "engine": the engine ended."""


class Tokenized(Event, frozen=True):
    """The answer to `Tokenize`."""

    request_id: int
    token_ids: list[int]


class Detokenized(Event, frozen=True):
    """The answer to `Detokenize`."""

    request_id: int
    text: str


class Steps(Event, frozen=True):
    """The reports of all steps since the last publish, in order."""

    reports: list[StepReport]


class RunState(Event, frozen=True):
    """Whether the scheduler runs or is paused (single-stepping), and how slowly it is to run."""

    paused: bool
    pace: float = 0.0
    """Seconds that a step takes at least (slow motion); 0 is as fast as can be."""
    limit: int | None = None
    """Blocks that the pool may use; `None` is all of them."""


class TokenTexts(Event, frozen=True):
    """What tokens stand for; each token is told once, before the first report that has it."""

    token_ids: list[int]
    texts: list[bytes]
    """UTF-8, maybe only a part of a character: the bytes of tokens one after the other are the text."""


class EngineNotice(Event, frozen=True):
    """The answer to a command that concerns the whole engine (limit, pin, evict, ...), or what was passed over
    while loading: for the user to read."""

    message: str
    hint: str = ""
    failed: bool = False
    """Whether the command was refused, or something passed over."""


class IntegrityBroken(Event, frozen=True):
    """The engine's own check found that its books disagree; it goes on, and must not be trusted."""

    step: int
    message: str
    dump: str
    """File with all that is known; empty if it could not be written."""


class ServerModels(Event, frozen=True):
    """A server has several models and none was named: one is to be chosen before it takes prompts."""

    server: str
    names: list[str]


class ServerFigures(Event, frozen=True):
    """What a server's `/metrics` tell now, of all its users together; `None` is what it does not tell."""

    problem: str = ""
    """Why there are none, in one sentence."""
    running: float | None = None
    """Requests that it is answering."""
    waiting: float | None = None
    """Requests in its queue."""
    cache_usage: float | None = None
    """The share of its KV cache in use, 0 to 1."""
    num_blocks: float | None = None
    block_size: float | None = None
    """Tokens of a block."""
    prefix_queries: float | None = None
    """Tokens looked up in its prefix cache, since it started."""
    prefix_hits: float | None = None
    """Of those, tokens found."""
    hit_rate: float | None = None
    """The share found, where it tells only that."""
    prompt_tokens: float | None = None
    """Since it started."""
    generated_tokens: float | None = None
    preemptions: float | None = None
    tokens_per_second: float | None = None
    """By its own account."""


class EngineDied(Event, frozen=True):
    """Made by the client: the engine process ended, without being asked to or to make room for another model."""

    exit_code: int | None
    """Negative: the signal that ended it."""
    log_tail: str
    """Its last lines."""
    restarting: bool
    """Whether another one is being started."""
    log_file: str = ""
    """Where all of its lines are; empty where no log is kept."""
    next_model: str = ""
    """The model that the next one is started with, where it was ended for that."""


class SequenceFigures(msgspec.Struct, frozen=True, array_like=True):
    """One sequence, without a word of what it says."""

    seq_id: int
    status: SequenceStatus
    num_tokens: int
    blocks_own: int
    """Of its block table, those that no other sequence has."""
    blocks_shared: int


class SequencesTold(Event, frozen=True):
    """All sequences as they are now, for who was asked how the engine stands."""

    sequences: list[SequenceFigures]
    num_left_out: int
    """Of more than were to be told one by one."""


class CacheKeyframe(Event, frozen=True):
    """All of the cache at once, for one who joins late or fell behind: the next steps follow on it."""

    state: bytes
    """As `engine/keyframe.py` encodes it."""


class ReplyKept(Event, frozen=True):
    """A server has gone on with a chat while nobody listened: what was asked, and what has been written since.

    The events of the request follow, from its start; of one that is done all of them do.
    """

    session_id: int
    request_id: int
    chat_id: int
    """By which a history knows the chat."""
    turns: list[tuple[str, str]]
    """Role and text of each, as the request was asked; the last one is its prompt."""
    text: str
    """Of the reply, so far."""
    finished: bool
    """Whether the reply is done, or was refused."""


class Attachment(Event, frozen=True):
    """Made by the link of a terminal whose engine is a server's: where that is, and whether it can be reached."""

    where: str
    """Host and port."""
    lost: str = ""
    """Why it cannot be reached now, in one sentence; empty while it can."""


EngineEvent = (
    LoadProgress | EngineReady | EngineFailed | TextDelta | RequestStarted | RequestFinished | RequestFailed
    | RequestWaits | RequestOutputs | RequestRefused | Tokenized | Detokenized
    | Steps | RunState | TokenTexts | EngineNotice | IntegrityBroken | EngineDied | ServerModels | ServerFigures
    | SequencesTold | CacheKeyframe | ReplyKept | Attachment
)  # fmt: skip
