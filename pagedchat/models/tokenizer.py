"""The tokenizer of a checkpoint as a `tokenizers.Tokenizer`, its special tokens and its chat template.

`tokenizer.json` is read as it is; `vocab.json` with `merges.txt` (GPT-2, OPT) makes a byte-level BPE; anything else
goes through transformers. Knows files, no model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from pagedchat.errors import ModelError, first_line
from pagedchat.models.quiet import quiet
from pagedchat.models.raw_config import read_json

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
_OPT_TOKENS = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
_GPT2_TOKENS = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_OTHER_FILES = ("tokenizer.model", "spiece.model", "vocab.txt", "tekken.json")
_MOST_PIECES = 1_024
"""Of text, whose tokens a BPE remembers. A page of English takes 5 % longer than with 10,000."""
_HINT = "Give another tokenizer with --tokenizer, or download the model again."


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer and what goes with it."""

    tokenizer: Tokenizer
    """Its `encode` puts the special tokens around a text that the model expects there."""
    chat_template: str | None
    """Jinja source; None for a base model."""
    special_tokens: dict[str, str] = field(default_factory=dict)
    """`{"bos_token": "<s>", "eos_token": "</s>"}` and so on, for the template."""

    def check_fits(self, name: str, model_name: str, vocab_size: int) -> None:
        """Refuse the tokenizer of another model.

        A model may have rows for more tokens than its tokenizer knows, as padding. Tokens that were added to a
        tokenizer may lie beyond the model's rows, where the model never learnt them: then the engine refuses the
        prompts that have them (`EngineLimits.vocab_size`), unless every prompt begins with one.

        Args:
            name: of the tokenizer, for messages.
            model_name: the same.
            vocab_size: token ids of the model are below it.

        Raises:
            ModelError: the tokenizer is another model's.
        """
        num_tokens = self.tokenizer.get_vocab_size(with_added_tokens=False)
        most = max(self.tokenizer.encode("a").ids, default=0)
        if num_tokens > vocab_size or most >= vocab_size:
            raise ModelError(
                f"The tokenizer of {name} has {max(num_tokens, most + 1)} tokens, but {model_name} has "
                f"{vocab_size}: they do not belong together.",
                "Give the tokenizer that the model was trained with, by --tokenizer or in its folder.",
            )


def load_tokenizer(name: str, folder: Path, model_type: str) -> LoadedTokenizer:
    """Read the tokenizer in `folder`.

    Args:
        name: of the model, for messages.
        folder: of the checkpoint.
        model_type: from the config; says what OPT's files do not.

    Raises:
        ModelError: no tokenizer, or one that cannot be read.
    """
    settings = _read_json(folder / "tokenizer_config.json")
    special_tokens = _special_tokens(folder, settings)
    try:
        file = "tokenizer.json"
        if (folder / file).is_file():
            tokenizer = _from_file(folder / file)
        elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            file = "vocab.json or merges.txt"
            special_tokens = (_OPT_TOKENS if model_type == "opt" else _GPT2_TOKENS) | special_tokens
            tokenizer = _byte_level_bpe(folder, special_tokens, bool(settings.get("add_prefix_space")))
        elif others := [other for other in _OTHER_FILES if (folder / other).is_file()]:
            file = others[0]
            tokenizer = _through_transformers(folder)
        else:
            raise ModelError(f"{name} has no tokenizer.", _HINT)
    except ModelError:
        raise
    except Exception as error:  # the library raises plain Exception for a damaged file
        raise ModelError(f"{file} of {name} cannot be read: {first_line(error)}.", _HINT) from error
    try:
        bound_memory(tokenizer)
        if settings.get("add_bos_token", model_type == "opt"):
            with _panics_as_errors():
                put_in_front(tokenizer, special_tokens.get("bos_token"))
        return LoadedTokenizer(tokenizer, _chat_template(folder, settings), special_tokens)
    except Exception as error:  # of many kinds, for the many ways in which values can be wrong
        raise ModelError(
            f"The settings of the tokenizer of {name} make no sense: {first_line(error)}.", _HINT
        ) from error


def _from_file(path: Path) -> Tokenizer:
    with _panics_as_errors():
        return Tokenizer.from_file(str(path))


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """The library may panic over a file that contradicts itself, which is no `Exception`."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise ValueError(str(error)) from error


def _byte_level_bpe(folder: Path, special_tokens: dict[str, str], add_prefix_space: bool) -> Tokenizer:
    """GPT-2's tokenizer from its two files. The library skips the `#version` line of merges.txt and no other."""
    tokenizer = Tokenizer(BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = ByteLevelDecoder()
    known = dict.fromkeys(token for token in special_tokens.values() if tokenizer.token_to_id(token) is not None)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in known])
    return tokenizer


def _through_transformers(folder: Path) -> Tokenizer:
    from transformers import AutoTokenizer  # noqa: PLC0415 - seconds of imports that few models need

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelError(f"The tokenizer in {folder} has no fast version.", _HINT)
    return backend


def bound_memory(tokenizer: Tokenizer) -> None:
    """Let a BPE remember fewer pieces of text than the library's 10,000.

    Where nothing parts a text into words before it (Llama 2, Gemma), a prompt of up to 256 bytes is one piece,
    and a process that keeps each with its tokens grows by 2 to 5 KiB a prompt. The library has no public name for
    this.
    """
    resize = getattr(tokenizer.model, "_resize_cache", None)
    if resize is not None:
        resize(_MOST_PIECES)


def put_in_front(tokenizer: Tokenizer, bos_token: str | None) -> None:
    """Make every text begin with `bos_token`, unless the tokenizer sees to that already."""
    bos_id = None if bos_token is None else tokenizer.token_to_id(bos_token)
    if bos_id is None or tokenizer.encode("a").ids[:1] == [bos_id]:
        return
    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos_token} $A", pair=f"{bos_token} $A {bos_token} $B", special_tokens=[(bos_token, bos_id)]
    )


def _special_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    """Written as text, or as an object with the text in `content`."""
    values = _read_json(folder / "special_tokens_map.json") | {k: v for k, v in settings.items() if v is not None}
    contents = {role: _content(values.get(role)) for role in _ROLES}
    return {role: content for role, content in contents.items() if content is not None}


def _content(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """A file of its own, or in tokenizer_config.json: one template, or several, of which "default" counts."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    """The file's object; empty where it is missing.

    Raises:
        ModelError: the file is there and broken.
    """
    try:
        return read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} in {path.parent} cannot be read: {error}.", _HINT) from error
