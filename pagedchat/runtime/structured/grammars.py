"""Forms of replies, compiled for the tokens of one model by llguidance, and kept for who asks again. Knows the
library, a tokenizer and the forms; no sequences and no logits.

Derivatives of regular expressions, an Earley parser, and a trie of the vocabulary say which tokens may come next
(https://github.com/guidance-ai/llguidance).
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.runtime.structured.free_texts import SchemaPaths
from pagedchat.runtime.structured.grammar import Grammar, num_words
from pagedchat.runtime.structured.json_place import JsonPlaces
from pagedchat.runtime.structured.token_texts import TokenTexts
from pagedchat.structured.params import Form, StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from tokenizers import Tokenizer

_MOST_KEPT = 16
"""Compiled forms; each may hold 20 MB at the most, for every eight replies that follow it at the same time."""
_LIMITS = {"max_lexer_states": 10_000, "initial_lexer_fuel": 300_000, "verbose_errors": False}
"""Of what one form may take: a state is some 2 kB, and fuel is burnt at 50,000 a millisecond."""
_NO_EXTENSION = "NoExtension"
"""By which the library says that a form has no text."""
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Left free, a small model writes blanks until its reply is full."""
_NOT_AHEAD = '\n%llguidance {"no_forcing": true}\n'
"""Behind a grammar, so that it holds whatever stands there before. Else the library follows bytes that are the only
ones possible as far as they go; of `start: /y+/ /y+/` they have no end (llguidance 1.9), be it at the beginning or
in the midst of a reply. What other forms are made of ends."""


class Grammars:
    """The grammars that requests to one model asked for. Several threads may ask; none waits for a form that is
    not its own.

    Args:
        tokenizer: the model's; None where it was loaded without one.
        vocab_size: of the model's logits, which may be more than the tokenizer has.
        eos_token_ids: by which a reply ends.
    """

    def __init__(self, tokenizer: "Tokenizer | None", vocab_size: int, eos_token_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = sorted(eos_token_ids)
        self._vocabulary: LLTokenizer | None = None
        self._texts: TokenTexts | None = None
        """Of its tokens."""
        self._kept: OrderedDict[Form, Future[Grammar]] = OrderedDict()
        """Those that are being compiled, too."""
        self._lock, self._vocabulary_lock = threading.Lock(), threading.Lock()

    def compile(self, wanted: StructuredOutputsParams) -> Grammar:
        """The grammar of a form; one that was asked for before costs nothing.

        Raises:
            RequestError: llguidance is not installed, or the model has no tokenizer or no token to end with.
            InvalidValueError: it is no form, asks for what the library does not know, or nothing satisfies it.
        """
        form = wanted.form
        with self._lock:
            found = self._kept.get(form)
            grammar: Future[Grammar] = found or Future()
            self._kept[form] = grammar
            self._kept.move_to_end(form)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        if found is None:
            try:
                grammar.set_result(self._compiled(form))
            except BaseException as error:
                grammar.set_exception(error)
                with self._lock:
                    self._kept.pop(form, None)
        return grammar.result()

    def _compiled(self, form: Form) -> Grammar:
        library, vocabulary = _library(), self._vocabulary_of_model()
        source = _source(library, form)
        limits = library.LLParserLimits(**_LIMITS)
        problem, messages = library.LLMatcher.validate_grammar_with_warnings(source, vocabulary, limits=limits)
        if problem:
            raise _refused(form, messages[0])
        beginning = partial(library.LLMatcher, vocabulary, source, log_level=0, limits=limits)
        began = perf_counter()
        matcher = beginning()
        seconds = perf_counter() - began
        row = np.zeros(num_words(self._vocab_size), np.int32)
        # The first mask takes some ten milliseconds, in which the library builds what all later ones share.
        matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if matcher.is_error() or not row.any():
            raise _refused(form, matcher.get_error() or _NO_EXTENSION)
        return Grammar(matcher, self._vocab_size, beginning, seconds, self._places_of(form, vocabulary))

    def _places_of(self, form: Form, vocabulary: "LLTokenizer") -> JsonPlaces | None:
        """Where replies of a form stand, if it is a JSON schema with texts that may be any."""
        if form.kind != "json":
            return None
        schema = SchemaPaths(json.loads(form.text))
        return JsonPlaces(schema, self._texts_of(vocabulary)) if schema.any_text() else None

    def _texts_of(self, vocabulary: "LLTokenizer") -> TokenTexts:
        with self._vocabulary_lock:
            if self._texts is None:
                self._texts = TokenTexts(vocabulary)
            return self._texts

    def _vocabulary_of_model(self) -> "LLTokenizer":
        if self._tokenizer is None:
            raise RequestError(
                "structured_outputs needs a tokenizer, and this model was loaded without one.",
                "Load it with one.",
            )
        if not self._eos_token_ids:
            raise RequestError("structured_outputs needs a token that ends a reply, and this model has none.")
        with self._vocabulary_lock:
            if self._vocabulary is None:
                self._vocabulary = _library().LLTokenizer(
                    self._tokenizer.to_str(), n_vocab=self._vocab_size, eos_token=self._eos_token_ids
                )
            return self._vocabulary


def _library() -> Any:
    try:
        import llguidance  # noqa: PLC0415 - an extra that few requests need
    except ImportError:
        raise RequestError(
            "structured_outputs needs the package llguidance, which is not installed.",
            "Install pagedchat[structured], or llguidance beside it.",
        ) from None
    return llguidance


def _source(library: Any, form: Form) -> str:
    """The form in the library's own notation."""
    compiler, text = library.LLMatcher, form.text
    try:
        match form.kind:
            case "json":
                return cast(str, compiler.grammar_from_json_schema(text, overrides=_COMPACT))
            case "regex":
                return cast(str, compiler.grammar_from_regex(text))
            case "choice":
                alternatives = " | ".join(json.dumps(each, ensure_ascii=False) for each in json.loads(text))
                return cast(str, compiler.grammar_from_lark(f"start: {alternatives}"))
            case "grammar":
                from llguidance.gbnf_to_lark import any_to_lark  # noqa: PLC0415 - as above

                return cast(str, compiler.grammar_from_lark(any_to_lark(text) + _NOT_AHEAD))
    except Exception as error:  # of a kind of its own for each notation
        raise _refused(form, str(error)) from error


def _refused(form: Form, why: str) -> InvalidValueError:
    lines = [line.strip() for line in why.splitlines()]
    # Of a regular expression the library shows where it goes wrong first, and then says what.
    if why.startswith(_NO_EXTENSION):
        lines = ["nothing satisfies it"]
    said = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    return InvalidValueError(
        f"structured_outputs.{form.kind} cannot be held to: {said.rstrip('.')}.",
        "Nothing was run. See docs/library.md for what a schema, an expression or a grammar may have.",
    )
