"""What config.json says about a model, and whether our own modules run it or transformers. Reads no weights."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pagedchat.bounds import INT32_MAX, Whole, refused
from pagedchat.config import ModelImplementation
from pagedchat.errors import InvalidValueError, ModelError
from pagedchat.models.checkpoint_files import GGUF
from pagedchat.models.description import ModelDescription, as_token_ids, describe_native
from pagedchat.models.gguf.describe import describe_gguf
from pagedchat.models.native import quant_method, read_native
from pagedchat.models.quantized.mxfp4 import QUANT_METHOD, STORED_AS
from pagedchat.models.quantized.packing import read_packing
from pagedchat.models.raw_config import NotNativeError, check_sizes, read_json

_HINT = "Download the model again, or mend the file."

log = logging.getLogger(__name__)


def describe_model(name: str, folder: Path, implementation: ModelImplementation = "auto") -> ModelDescription:
    """Read `config.json` in `folder`.

    Args:
        name: of the model, for messages.
        folder: a local checkpoint, or a GGUF file.
        implementation: whose modules; "auto" takes ours where there are any for the model.

    Raises:
        ModelError: no config, a broken one, or a model that the paged engine cannot run.
    """
    if folder.suffix.lower() == GGUF and folder.is_file():
        if implementation == "transformers":
            raise ModelError(
                f"{name} is a GGUF file, which transformers is not asked to run.",
                "Leave out --model-implementation transformers.",
            )
        return describe_gguf(name, folder)
    values = _read_config(name, folder)
    try:
        check_sizes(values)
        _check_architectures(values)
        as_token_ids("eos_token_id", values.get("eos_token_id"))
        description = _describe(name, folder, values, implementation)
        _check_description(description)
        return description
    except ModelError:
        raise
    except InvalidValueError as error:
        raise ModelError(f"In the config.json of {name} {error.message} {error.hint}", _HINT) from error
    except Exception as error:  # of many kinds, for the many ways in which values can go together wrongly
        raise ModelError(
            f"The config.json of {name} makes no sense: {type(error).__name__}: {error!s:.200}.", _HINT
        ) from error


def _describe(
    name: str, folder: Path, values: Mapping[str, Any], implementation: ModelImplementation
) -> ModelDescription:
    if implementation != "transformers":
        try:
            return _describe_native(name, folder, values)
        except NotNativeError as error:
            if implementation == "native":
                raise ModelError(
                    f"There is no native implementation for {name}, since {error}.",
                    "Leave out --model-implementation native.",
                ) from error
            log.info("%s runs through transformers, since %s", name, error)
    from pagedchat.models.transformers_config import describe  # noqa: PLC0415 - seconds of imports, not always needed

    return describe(name, folder, values["model_type"])


def _check_architectures(values: Mapping[str, Any]) -> None:
    given = values.get("architectures")
    if given is not None and not (isinstance(given, list) and all(isinstance(each, str) for each in given)):
        raise refused("architectures", given, "a list of names")


def _check_description(description: ModelDescription) -> None:
    """Sizes that transformers has taken over from the file as they were."""
    for name in ("num_layers", "num_heads", "num_kv_heads", "head_dim", "vocab_size", "max_model_len"):
        Whole(1, INT32_MAX).check(name, getattr(description, name))


def _describe_native(name: str, folder: Path, values: Mapping[str, Any]) -> ModelDescription:
    is_mxfp4 = quant_method(values) == QUANT_METHOD
    packing = None if is_mxfp4 else read_packing(name, values.get("quantization_config"))
    described = read_native(values if is_mxfp4 else {**values, "quantization_config": None})
    return describe_native(
        name,
        folder,
        described,
        model_type=values["model_type"],
        eos_token_ids=as_token_ids("eos_token_id", described.eos_token_id),
        dtype=_dtype(values),
        stored_as=packing.name if packing else STORED_AS if is_mxfp4 else "",
        packing=packing,
    )


def _read_config(name: str, folder: Path) -> dict[str, Any]:
    """The file's object, which names a `model_type`."""
    try:
        values = read_json(folder / "config.json")
    except FileNotFoundError as error:
        raise ModelError(
            f"{name} has no config.json.", "Give the folder of a checkpoint as transformers saves it, or a hub id."
        ) from error
    except (OSError, ValueError) as error:
        raise ModelError(f"The config.json of {name} cannot be read: {error}.", _HINT) from error
    if not isinstance(values.get("model_type"), str):
        raise ModelError(
            f"The config.json of {name} names no model_type.", "It is not a checkpoint of transformers."
        )
    return values


def _dtype(values: Mapping[str, Any]) -> torch.dtype | None:
    """Older files call it `torch_dtype`; those in MXFP4 say nothing of the rest, which is bfloat16."""
    other = "bfloat16" if quant_method(values) == QUANT_METHOD else None
    dtype = getattr(torch, str(values.get("dtype") or values.get("torch_dtype") or other), None)
    return dtype if isinstance(dtype, torch.dtype) else None
