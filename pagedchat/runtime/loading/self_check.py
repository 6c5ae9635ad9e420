"""A runner held against its model without any cache, on each road that it has, before the first request.

There are three: the eager one, captured decodes and captured prefills. Each runs a short text in pieces; what
it says of the text's last token must be what the model says of the whole text in one forward pass. The eager
road is what makes "any model of transformers" safe to say: a model that keeps state outside the KV cache, or
looks at its text in a way that the paged attention does not know of, gives other logits and is refused.
Captured steps compute the same numbers with other kernels; on a GPU where one did not, nobody should find out from
the model's answers, and so the next slower one takes its place, or the eager road where none is left.

Knows neither graphs nor kernels: steps come from others, ready to run.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import isnan, nan
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import torch

from pagedchat.engine.output import ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import ModelError, PagedChatError, is_out_of_memory
from pagedchat.layers.by_torch import by_torch, do_without_kernels
from pagedchat.layers.experts import SparseMlp
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.models.decoder_layer import DecoderLayer
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.dense import DenseAttention
from pagedchat.runtime.attention.transformers_attention import ATTENTION_NAME
from pagedchat.runtime.loading.check_record import LeftOut
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.model_runner import TorchModelRunner

if TYPE_CHECKING:  # only a GPU has any use for them
    from pagedchat.runtime.graphs.decode.decode_steps import BegunDecodes, DecodeSteps
    from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps

log = logging.getLogger(__name__)

_TOLERANCE = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 0.25, torch.float16: 0.25}
"""Relative error of the logits, by their type. What is wrong is off by about 1; rounding stays far below these.
Weights of few bits need no room of their own: what a road says is held against the model with these very weights as
floats, multiplied by torch. Kernels for them on a CPU, though, bring what they multiply to 8 bits. Those on a GPU
round nothing that others do not: digits of int8, fp8 and int4 are exact in 16 bits, and scales multiply sums. The
floats that they are held against are rounded once, each by up to half a step of the type, so that a product of them
is off by 2^-11 / sqrt(3) in float16 and 2^-8 / sqrt(3) in bfloat16, whatever the format; 129 products, as in 32
layers, by 0.3 and 2.6 %."""
_OF_8_BITS = 0.25
"""The same where kernels round inputs to 8 bits. A group of 16 to 128 has 127 steps up to its largest number,
which is 1.8 to 2.6 times the root mean square of normal ones; off by 1 / sqrt(12) of a step each, the inputs are
off by 0.4 to 0.6 %, and so is their product. Products one behind the other add that up like independent errors: 97
of them, in 24 layers, to 0.6 % * sqrt(97) = 6 % (found: 3 %; 1 % in the model in the box). A layer whose attention
is very sharp multiplies it: of tiny models with large random weights, 9 products, most are off by 1 to 3 %, the
worst by 11 %. So does bfloat16, which rounds by as much, and it has the same room."""
_OF_BYTES = 0.25
"""The same where keys and values are kept in one byte an element. Whole numbers, 127 up to the largest of a head,
are off by 0.6 % of a normal head's root mean square, as above; floats with 3 bits behind the first by 1/16 at most,
which is 2.6 % in the mean. What attention adds is off by both of keys and values, sqrt(2) as much, 3.7 %; the
halves of layers add that up as they add up what it is a part of, so that the logits are off by about as much (found
in the model in the box: 0.6 and 2.2 %). A layer whose attention is very sharp multiplies it, as above."""
_CAPTURED_TOLERANCE = {**_TOLERANCE, torch.bfloat16: 0.1, torch.float16: 0.1}
"""The same of captured steps, which are models of our own alone: less may be left to chance."""

_WHOLE_STEPS, _PRODUCTS = "one call into CPU kernels", "CPU kernels"
_MOST_OF_EXPERTS = 0.5
"""As far as logits of a mixture of experts may be off at best. Random weights, whose experts are about equally
likely, are the worst: where one of a token's four is another one, what the mixture gives is off by 70 %."""
_SHORT, _LONG = 20, 40
"""Tokens of the texts: for the eager road and for decodes, and for prefills, in two chunks of a common size."""
_FIRST = 15
"""Tokens of the eager road's first chunk: CPU kernels multiply them as 8, 4, 2 and 1, each by code of its own."""
_TEXTS = 5
"""Of a mixture of experts, if the first one is off."""
_GREEDY, _DRAWN = SamplingParams(temperature=0), SamplingParams(temperature=1.0)
_SHORTLIST = SamplingParams(temperature=1.0, top_k=1)
"""Drawn from few, of which the most likely token alone is left."""


@contextmanager
def first_passes(name: str) -> Iterator[None]:
    """Of a model of transformers: what it raises when it is run for the first time, with our attention, is one
    sentence.

    Args:
        name: of the model, for the message.

    Raises:
        ModelError: whatever the model raised. Memory that runs out goes through, and what has words already.
    """
    try:
        yield
    except PagedChatError:
        raise
    except Exception as error:  # of many kinds, for the many ways in which modules can be called otherwise
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{name} does not run with the paged cache: {type(error).__name__}: {error!s:.200}.",
            "Its modules are called in a way that pagedchat does not know; choose another model.",
        ) from error


class SelfCheck:
    """The check of one runner.

    Args:
        name: of the model, for the message.
        runner: with a cache whose contents do not matter; captured steps read the same one.
        vocab_size: token ids are below it.
        exact: whether every road is to say the same, bit for bit, however a text is cut and whatever is beside it.
    """

    def __init__(self, name: str, runner: TorchModelRunner, vocab_size: int, *, exact: bool = False) -> None:
        self._name = name
        self._runner = runner
        self.vocab_size = vocab_size
        """Token ids are below it."""
        self._block_size = runner.backend.shape.block_size
        self._expected: dict[tuple[int, ...], torch.Tensor] = {}
        self._rooms: dict[int, float] = {}
        """What rounding takes of a mixture, by the length of its texts."""
        self._exact = exact
        self._eager: dict[int, torch.Tensor] = {}
        """Logits of texts on the eager road, each in one chunk; where they have to be exact."""
        self.left_out: list[LeftOut] = []
        """Kinds of captured steps that were not right, in the order in which they were found."""

    def refuse_if_wrong(self) -> None:
        """The eager road, without which there is no other. If it is right without CPU kernels alone, those are left
        out, and the log says so.

        Raises:
            ModelError: the logits differ.
        """
        error, room = self._eager_error()
        if not error <= room and self._has_wrong_kernels(error):
            error = 0.0
        if not error <= room:
            raise ModelError(
                f"{self._name} gives other results with the paged cache than without (off by {error:.2g}).",
                "Its attention is not one that pagedchat knows; choose another model.",
            )
        if self._exact and not self._is_same_in_company():
            raise ModelError(
                f"{self._name} gives other numbers in company than alone, in spite of --batch-invariant.",
                "Leave the option out; `pagedchat doctor` says what a report of this should have.",
            )

    def _eager_error(self) -> tuple[float, float]:
        """How far the eager road is off, and how far it may be."""
        return self._error_in_the_middle(self._eager_error_of)

    def _error_in_the_middle(self, error_of: Callable[[int], tuple[float, float]]) -> tuple[float, float]:
        """Of one text, if it is off by no more than it may be, or tokens have no experts. Else that in the middle
        of several: by rounding a token has another expert now and then, which is nobody's mistake, and all that
        follows is off. What is wrong is off in every text."""
        error, room = error_of(0)
        if error <= room or not self._mixes:
            return error, room
        error = _middle([error, *(error_of(number)[0] for number in range(1, _TEXTS))])
        return error, self._widened(room, error, _SHORT)

    def _eager_error_of(self, number: int) -> tuple[float, float]:
        text = self._text(_SHORT, number)
        length = len(text)
        cuts = sorted({0, min(_FIRST, length // 2 + length // 4), max(length - 1, 0), length})
        for start, end in pairwise(cuts):
            logits = self._forward(text, start, end)
        return self._error(text, logits), self._room(logits.dtype)

    def _has_wrong_kernels(self, error: float) -> bool:
        """Whether the eager road is off by `error` because of CPU kernels; if so, torch multiplies from now on."""
        model = self._runner.model
        with by_torch(model):
            without, room = self._eager_error()
        if self._runner.device.type != "cpu" or not without <= room:
            return False
        do_without_kernels(model)
        return self._has_slower("Products", _PRODUCTS, error)

    @torch.inference_mode()
    def allows_whole_steps(self) -> bool:
        """Whether decodes on a CPU are right, each of them one call into compiled code; if not, the log says so."""
        error, room = self._error_in_the_middle(self._step_error_of)
        if error <= room:
            return True
        self._has_slower("Steps", _WHOLE_STEPS, error)
        return False

    def _step_error_of(self, number: int) -> tuple[float, float]:
        """Of the last token of a text; where there is none before it there is nothing to try."""
        text = self._text(_SHORT, number)
        last = len(text) - 1
        if last == 0:
            return 0.0, 0.0
        self._forward(text, 0, last)
        logits = self._forward(text, last, len(text))
        return self._error(text, logits), self._room(logits.dtype)

    def _room(self, dtype: torch.dtype) -> float:
        """How far logits of this type may be off."""
        layers = (module for module in self._runner.model.modules() if isinstance(module, QuantizedLinear))
        inputs = _OF_8_BITS if any(layer.products for layer in layers) else 0.0
        return max(_TOLERANCE[dtype], inputs, self._room_of_cache)

    @property
    def _room_of_cache(self) -> float:
        """How far logits may be off since keys and values are."""
        return 0.0 if self._runner.backend.shape.kind is None else _OF_BYTES

    @property
    def _room_of_captured(self) -> float:
        """How far those of captured steps may be."""
        return max(_CAPTURED_TOLERANCE[self._runner.backend.shape.dtype], self._room_of_cache)

    @property
    def _mixes(self) -> bool:
        """Whether tokens have experts, and by rounding another one now and then: see `_error_in_the_middle`."""
        return any(isinstance(module, SparseMlp) for module in self._runner.model.modules())

    def _widened(self, room: float, error: float, length: int) -> float:
        """The room for texts of this length; of a mixture that is off by more, what experts take, if it is more."""
        return room if error <= room or not self._mixes else max(room, self._room_of_experts(length))

    def _room_of_experts(self, length: int) -> float:
        """How far logits may be off since rounding gives tokens other experts: as far as the model's own are where
        what its layers and its routers say is rounded otherwise, in the worst of several texts."""
        if length not in self._rooms:
            errors = []
            for number in range(_TEXTS):
                text = self._text(length, number)
                with rounded_otherwise(self._runner.model):
                    logits = logits_without_cache(self._runner.model, text.token_ids, self._runner.device)
                errors.append(self._distance(text, logits))
            self._rooms[length] = min(_MOST_OF_EXPERTS, max(errors))
        return self._rooms[length]

    def _is_same_in_company(self) -> bool:
        """Whether the eager road says the same of a text in one chunk, in several and beside another text."""
        text = self._text(_LONG)
        length, num_blocks = len(text), len(text.block_table)
        alone = self._forward(text, 0, length).clone()
        self._eager[length] = alone[0]
        for start, end in pairwise(sorted({0, length // 3, length - 1, length} - {-1})):
            in_pieces = self._forward(text, start, end)
        if 2 * num_blocks > self._runner.backend.num_blocks:
            return torch.equal(in_pieces, alone)
        other = self._text(length)
        other.seq_id, other.token_ids = 1, text.token_ids[::-1]
        other.block_table = list(range(num_blocks, 2 * num_blocks))
        decode, prompt = _chunk(text, length - 1, length), ScheduledSequence(other, 0, length, True)
        inputs = flatten([prompt, decode], self._block_size, self._runner.device)
        in_company = self._runner.forward(inputs)[inputs.sampled.index(1)]
        return torch.equal(in_pieces, alone) and torch.equal(in_company, alone[0])

    @torch.inference_mode()
    def allows_decodes(self, decodes: "DecodeSteps") -> bool:
        """Whether captured decodes are right, as far as there are any. A kind of step that is not is left out from
        now on, and the log says so; none may be left."""
        while (wrong := self._wrong_decode(decodes)) is not None:
            begun, error = wrong
            if not self._has_slower("Steps", decodes.distrust(begun), error):
                return False
            decodes.prepare(1, 1)
        return True

    @torch.inference_mode()
    def allows_prefills(self, prefills: "PrefillSteps") -> bool:
        """The same of captured prefills."""
        while (error := self._wrong_prefill(prefills)) is not None:
            if not self._has_slower("Prefills", prefills.distrust(), error):
                return False
            prefills.prepare(_LONG // 2)
        return True

    def _has_slower(self, what: Literal["Steps", "Prefills", "Products"], kind: str, error: float) -> bool:
        """Whether something takes the place of what is off by `error` and, if that is so, left out."""
        off = "some bits" if self._exact and isnan(error) else f"{error:.2g}"
        self.left_out.append(LeftOut(what, kind, off))
        log.warning(self.left_out[-1].sentence)
        return bool(kind)

    def _wrong_decode(self, decodes: "DecodeSteps") -> "tuple[BegunDecodes, float] | None":
        """A captured step that is not right, and how far it is off; None where there is none, or nothing to try."""
        tried, room = self._errors_of_decodes(decodes, 0), self._room_of_captured
        if self._mixes and any(not error <= room for error, _ in tried):
            others = [tried, *(self._errors_of_decodes(decodes, number) for number in range(1, _TEXTS))]
            tried = [(_middle([error for error, _ in kind]), kind[0][1]) for kind in zip(*others, strict=False)]
        return next(
            ((begun, error) for error, begun in tried if not error <= self._widened(room, error, _SHORT)), None
        )

    def _errors_of_decodes(self, decodes: "DecodeSteps", number: int) -> "list[tuple[float, BegunDecodes]]":
        """How far those of the last token of a text are off; empty where there is nothing to try."""
        text = self._text(_SHORT, number)
        if self._exact:
            self._eager[len(text)] = self._forward(text, 0, len(text))[0].clone()
        last = _chunk(text, len(text) - 1, len(text))
        if last.start == 0:
            return []
        self._forward(text, 0, last.start)
        likeliest = [_decode(decodes, last)]
        if "shortlist" in decodes.choices(1, len(text)):
            text.sampling_params = _SHORTLIST
            likeliest.append(_decode(decodes, last))
        # A step that chooses the most likely token may have made no logits.
        text.sampling_params = _DRAWN
        drawn = _decode(decodes, last)
        there = [each for each in likeliest if each is not None]
        if drawn is None or len(there) < len(likeliest):
            return []
        logits = decodes.last_logits[:1].clone()
        errors = [(_shortfall(logits[0], token_id), begun) for begun, token_id in there]
        return [(self._error(text, logits), drawn[0]), *errors]

    def _wrong_prefill(self, prefills: "PrefillSteps") -> float | None:
        """How far captured prefills are off; None where they are right, or there is nothing to try."""
        error, room = self._error_of_prefill(prefills, 0), self._room_of_captured
        if self._mixes and not error <= room:
            error = _middle([error, *(self._error_of_prefill(prefills, number) for number in range(1, _TEXTS))])
        return None if error <= self._widened(room, error, _LONG) else error

    def _error_of_prefill(self, prefills: "PrefillSteps", number: int) -> float:
        """Of a text."""
        text = self._text(_LONG, number)
        middle = _LONG // 2
        if len(text) <= middle:
            return 0.0
        for start, end in ((0, middle), (middle, len(text))):
            begun = prefills.begin(_batch_of(_chunk(text, start, end)))
            if begun is None:
                return 0.0
            prefills.finish(begun)
        return self._error(text, prefills.logits[:1].clone())

    def _text(self, length: int, number: int = 0) -> Sequence:
        """A sequence of so many tokens, or as many as the cache holds, in its first blocks, the last one first; the
        texts of two numbers differ in all tokens."""
        length = min(length, self._runner.backend.num_blocks * self._block_size)
        text = Sequence(0)
        text.token_ids = [(i * 7919 + 11 + number) % self.vocab_size for i in range(length)]
        text.block_table = list(reversed(range(-(-length // self._block_size))))
        text.sampling_params, text.stop_length = _GREEDY, length + 1
        return text

    def _forward(self, text: Sequence, start: int, end: int) -> torch.Tensor:
        """Logits after the last token of a chunk, on the eager road: `[1, vocab_size]`."""
        chunk = ScheduledSequence(text, start, end - start, True)
        return self._runner.forward(flatten([chunk], self._block_size, self._runner.device))

    def _error(self, text: Sequence, logits: torch.Tensor) -> float:
        """Of the logits after the text, `[1, vocab_size]`, relative to the model's own; NaN where there is one, or
        a bit is not that of the eager road where all have to be."""
        if len(text) in self._eager and not torch.equal(logits[0], self._eager[len(text)]):
            return float("nan")
        return self._distance(text, logits[0])

    def _distance(self, text: Sequence, logits: torch.Tensor) -> float:
        """The same of `[vocab_size]`, whatever other roads say."""
        key = tuple(text.token_ids)
        if key not in self._expected:
            self._expected[key] = logits_without_cache(self._runner.model, text.token_ids, self._runner.device)
        expected = self._expected[key]
        return float((logits.float() - expected).norm() / expected.norm().clamp_min(1e-9))


def _middle(errors: list[float]) -> float:
    """NaN where there is one."""
    return nan if any(map(isnan, errors)) else median(errors)


@contextmanager
def rounded_otherwise(model: torch.nn.Module) -> Iterator[None]:
    """Meanwhile what the layers of a model leave, and what its routers say, is more or less by the last place of
    its type."""

    def change(_module: torch.nn.Module, _inputs: object, rows: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        signs = torch.randint(2, rows.shape, generator=generator).to(rows.device) * 2 - 1
        return (rows.float() * (1 + signs * torch.finfo(rows.dtype).eps)).to(rows.dtype)

    changed = [module for module in model.modules() if isinstance(module, DecoderLayer)]
    routers = [module.router for module in model.modules() if isinstance(module, SparseMlp)]
    hooks = [module.register_forward_hook(change) for module in (*changed, *routers)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def logits_without_cache(model: torch.nn.Module, token_ids: list[int], device: torch.device) -> torch.Tensor:
    """What a model says after the last token of a text: `[vocab_size]`, float32; by torch, to which weights of few
    bits are the floats that they stand for.

    Args:
        model: of our own modules, or of transformers with our attention.
        token_ids: the text.
        device: where the model is.
    """
    ids = torch.tensor(token_ids, device=device)
    with by_torch(model):
        return (_native(model, ids) if isinstance(model, NativeModel) else _transformers(model, ids)).float()


def _native(model: NativeModel, ids: torch.Tensor) -> torch.Tensor:
    positions = torch.arange(len(ids), device=ids.device)
    logits: torch.Tensor = model(ids, positions, DenseAttention(), positions[-1:])
    return logits[0]


def _transformers(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Through the attention that the model brings."""
    model.set_attn_implementation("eager")
    try:
        logits: torch.Tensor = model(input_ids=ids[None], use_cache=False).logits[0, -1]
        return logits
    finally:
        model.set_attn_implementation(ATTENTION_NAME)


def _chunk(text: Sequence, start: int, end: int) -> ScheduledSequence:
    return ScheduledSequence(text, start, end - start, end == len(text))


def _batch_of(chunk: ScheduledSequence) -> SchedulerOutput:
    return SchedulerOutput(0, [chunk], [], chunk.num_tokens)


def _decode(decodes: "DecodeSteps", last: ScheduledSequence) -> "tuple[BegunDecodes, int] | None":
    """The step and the token that follows; None if the step is not captured."""
    begun = decodes.begin(_batch_of(last), goes_on=False)
    return None if begun is None else (begun, decodes.finish(begun).token_ids[0][0])


def _shortfall(logits: torch.Tensor, token_id: int) -> float:
    """How far the token's logit is below the highest of `[vocab_size]`, relative to it."""
    highest = logits.float().max()
    return float((highest - logits[token_id].float()) / highest.abs().clamp_min(1e-9))
