"""The tokenizer and chat template that a GGUF file has in it. Knows no tensor.

Two kinds: byte-level BPE with its merges (`gpt2`), whose text is first cut into words by a pattern that the file
gives the name of; and SentencePiece's BPE (`llama`), whose merges follow from the scores of its pieces.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from pagedchat.bounds import shown
from pagedchat.errors import ModelError, first_line
from pagedchat.models.gguf.header import read_header
from pagedchat.models.tokenizer import LoadedTokenizer, bound_memory, put_in_front

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
"""Types of tokens."""
_SPACE = "▁"
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_HINT = "Give the model's tokenizer with --tokenizer."


def _by_pattern(pattern: str) -> Any:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _single_digits() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


_CUTS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), _gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _single_digits),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), lambda: _by_pattern(_WORDS % "{1,3}")
    ),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen"), lambda: _by_pattern(_WORDS % "")),
    "gpt-4o": lambda: _by_pattern(_CASES),
}
"""How text is cut into words, by the name that files have for it."""
_BEGINS = ("llama-bpe", "llama3", "llama-v3")
"""Those whose texts begin with a token of their own, if nothing is said."""


def load_gguf_tokenizer(name: str, path: Path) -> LoadedTokenizer:
    """Read it.

    Args:
        name: of the model, for messages.
        path: of the file.

    Raises:
        ModelError: none, of another kind, or one that makes no sense.
    """
    values = read_header(path).values
    try:
        return _load(name, {key.removeprefix("tokenizer.ggml."): value for key, value in values.items()})
    except (ModelError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library may panic over what contradicts itself, which is no `Exception`
        raise ModelError(f"The tokenizer in {name} makes no sense: {first_line(error)}.", _HINT) from error


def _load(name: str, values: dict[str, Any]) -> LoadedTokenizer:
    tokens, kind = values.get("tokens"), values.get("model")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{name} has no tokenizer in it.", _HINT)
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"The tokenizer in {name} is of the kind {shown(kind)}, which is not known here.", _HINT)
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelError(f"The tokenizer in {name} has some tokens twice.", _HINT)
    types = values.get("token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        types = [1] * len(tokens)
    special = _special_tokens(tokens, values)
    tokenizer, begins = (_byte_level if kind == "gpt2" else _sentence_pieces)(name, vocabulary, types, values)
    _add(tokenizer, tokens, types, set(special.values()))
    bound_memory(tokenizer)
    if values.get("add_bos_token", begins):
        put_in_front(tokenizer, special.get("bos_token"))
    template = values.get("tokenizer.chat_template")
    return LoadedTokenizer(tokenizer, template if isinstance(template, str) else None, special)


def _special_tokens(tokens: list[str], values: dict[str, Any]) -> dict[str, str]:
    """By the names that templates have for them."""
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {role: values.get(f"{name}_token_id") for role, name in names.items()}
    return {
        role: tokens[token_id]
        for role, token_id in ids.items()
        if type(token_id) is int and 0 <= token_id < len(tokens)
    }


def _add(tokenizer: Tokenizer, tokens: list[str], types: list[int], special: set[str]) -> None:
    """Tokens that are found in a text before anything is cut."""
    kinds = list(zip(tokens, types, strict=True))
    control = [token for token, kind in kinds if kind == _CONTROL or token in special]
    own = [token for token, kind in kinds if kind == _USER_DEFINED and _SPACE not in token]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in own])


def _byte_level(
    name: str, vocabulary: dict[str, int], types: list[int], values: dict[str, Any]
) -> tuple[Tokenizer, bool]:
    """Of GPT-2's kind, and whether its texts begin with a token of their own."""
    cut, merges = values.get("pre"), values.get("merges")
    if not isinstance(cut, str) or cut not in _CUTS:
        raise ModelError(f"The tokenizer in {name} cuts text as {shown(cut)}, which is not known here.", _HINT)
    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges):
        raise ModelError(f"The tokenizer in {name} has no merges.", _HINT)
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(BPE(vocabulary, pairs, ignore_merges=cut in _BEGINS))
    if cut == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _CUTS[cut]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, cut in _BEGINS


def _sentence_pieces(
    name: str, vocabulary: dict[str, int], types: list[int], values: dict[str, Any]
) -> tuple[Tokenizer, bool]:
    """Of SentencePiece's kind; its texts begin with a token of their own."""
    scores = values.get("scores")
    if not isinstance(scores, list) or len(scores) != len(vocabulary):
        raise ModelError(f"The tokenizer in {name} has no scores.", _HINT)
    in_front = bool(values.get("add_space_prefix", True))
    unknown = next((token for token, kind in zip(vocabulary, types, strict=True) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(
        BPE(
            vocabulary,
            _merges(vocabulary, types, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=_BYTE in types,
        )
    )
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if in_front else spaces
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if in_front else steps)
    return tokenizer, True


def _merges(vocabulary: dict[str, int], types: list[int], scores: list[float]) -> list[tuple[str, str]]:
    """Every way to put a piece together out of two, the pieces of higher scores first."""
    apart = {token for token, kind in zip(vocabulary, types, strict=True) if kind in (_UNKNOWN, _CONTROL, _BYTE)}
    ranked = sorted(
        (token for token in vocabulary if token not in apart), key=lambda token: -scores[vocabulary[token]]
    )
    merges: list[tuple[str, str]] = []
    for token in ranked:
        halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        known = [pair for pair in halves if all(half in vocabulary and half not in apart for half in pair)]
        merges += sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return merges
