"""Configs of real models, without their weights, and the facts of batches of them."""

import json
from pathlib import Path
from typing import Any

from pagedchat.doctor.model_steps import KNOWN_GPUS
from pagedchat.models.native import NativeConfig, read_native
from pagedchat.runtime.graphs.model_tensors import sizes_of
from pagedchat.runtime.graphs.objections import objection_to, objection_to_whole_steps
from pagedchat.runtime.graphs.step_facts import DecodeFacts, Setting

FOLDER = Path(__file__).parents[2] / "models" / "configs"


def config_of(name: str) -> NativeConfig:
    """Of one of the folders in tests/models/configs."""
    return read_native(json.loads((FOLDER / name / "config.json").read_text(encoding="utf-8"))).config


def setting(config: NativeConfig, architecture: str, element: str = "float16", **others: Any) -> Setting:
    """A model on a GPU; `architecture` "" is a CPU."""
    gpu = KNOWN_GPUS[architecture] if architecture else None
    objections = {"objection": objection_to(config), "whole_objection": objection_to_whole_steps(config)}
    known = {"sizes": sizes_of(config), **objections, "element": element, "block_size": 16, "gpu": gpu}
    return Setting(**known | others)


def facts(
    where: Setting, rows: int, *, context_len: int = 512, choice: str = "greedy", **others: Any
) -> DecodeFacts:
    """A batch."""
    return DecodeFacts(setting=where, rows=rows, context_len=context_len, choice=choice, **others)  # type: ignore[arg-type]
