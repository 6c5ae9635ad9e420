"""A local checkpoint -> a transformers model that calls our attention. Runs no code from the checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from pagedchat.errors import DeviceError, ModelError
from pagedchat.models.checkpoint_files import check_whole, damaged, weight_files
from pagedchat.models.config import ModelDescription
from pagedchat.models.quiet import quiet


def load_weights(
    description: ModelDescription,
    *,
    attention: str,
    dtype: torch.dtype,
    device: torch.device,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> torch.nn.Module:
    """Read the weights.

    Args:
        description: from `describe_model`.
        attention: name of a registered attention function.
        dtype: element type that the weights are turned into.
        device: where they go.
        on_progress: told of `(done, total)` tensors.

    Returns:
        The model, in evaluation mode, without gradients.

    Raises:
        ModelError: weights missing, damaged or of another model.
        DeviceError: not enough memory.
    """
    files = weight_files(description.name, description.folder)
    for path in files:
        check_whole(path)
    try:
        with quiet(on_progress):
            model, report = AutoModelForCausalLM.from_pretrained(
                description.folder,
                config=description.config,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=files[0].suffix == ".safetensors",
                trust_remote_code=False,
                local_files_only=True,
                weights_only=True,
                ignore_mismatched_sizes=True,  # they are in the report
                output_loading_info=True,
            )
            _check_complete(description.name, report)
            ready: torch.nn.Module = model.to(device).eval().requires_grad_(False)
            return ready
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise DeviceError(
            f"There is not enough memory on {device} for the weights of {description.name}.",
            "Free some memory, or choose a smaller model.",
        ) from error
    except ModelError:
        raise
    except Exception as error:
        raise _explain(description.name, files, error) from error


def _check_complete(name: str, report: dict[str, Any]) -> None:
    """transformers fills gaps with random numbers; no one wants to chat with those."""
    missing, mismatched = report.get("missing_keys") or [], report.get("mismatched_keys") or []
    hint = "The checkpoint does not belong to its config.json; download the model again."
    if missing:
        raise ModelError(f"The weights of {name} lack {_some(missing)}.", hint)
    if mismatched:
        raise ModelError(
            f"The weights of {name} have other shapes than its config says: {_some(mismatched)}.", hint
        )


def _some(keys: Any) -> str:
    names = sorted(key if isinstance(key, str) else str(key[0]) for key in keys)
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _explain(name: str, files: list[Path], error: Exception) -> ModelError:
    """Why transformers could not load the files."""
    for path in files:
        if path.suffix == ".bin" and not _readable(path):
            return damaged(path)
    return ModelError(f"The weights of {name} cannot be loaded: {_first_line(error)}", "Download the model again.")


def _readable(path: Path) -> bool:
    try:
        torch.load(path, map_location="meta", weights_only=True)
    except Exception:  # torch raises many kinds for the many ways in which a file can be damaged
        return False
    return True


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
