"""A local checkpoint -> a transformers model that calls our attention. Runs no code from the checkpoint.

Imports transformers, which takes seconds: only for models that our own modules do not run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from pagedchat.models.checkpoint_files import check_room
from pagedchat.models.checkpoint_tensors import check_complete
from pagedchat.models.description import ModelDescription
from pagedchat.models.quiet import quiet


def load_transformers(
    description: ModelDescription,
    files: list[Path],
    *,
    attention: str,
    dtype: torch.dtype,
    device: torch.device,
    on_progress: Callable[[int, int], None],
) -> torch.nn.Module:
    """Read the weights.

    Args:
        description: with a transformers config.
        files: with the weights.
        attention: name of an attention function that transformers knows.
        dtype, device: what the weights are turned into, and where they go.
        on_progress: told of `(done, total)` tensors.

    Raises:
        ModelError: weights missing or of another shape; whatever else transformers raises goes through.
    """
    with quiet(), torch.device("meta"):
        described = AutoModelForCausalLM.from_config(description.config)
    check_room(description.name, files, sum(parameter.numel() for parameter in described.parameters()))
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
    check_complete(description.name, _names(report, "missing_keys"), _names(report, "mismatched_keys"))
    ready: torch.nn.Module = model.to(device).eval().requires_grad_(False)
    return ready


def _names(report: dict[str, Any], kind: str) -> list[str]:
    """Of tensors; some come with their shapes."""
    return [key if isinstance(key, str) else str(key[0]) for key in report.get(kind) or []]
