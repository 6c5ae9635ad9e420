"""Every family that chains of launches run, in all kinds, with heads that the kernels have: what differs from a
Llama is taken over, sizes are not.
"""

import copy
from dataclasses import replace

import torch

from pagedchat.layers.attention import Heads
from pagedchat.layers.rotary_frequencies import PairScaling, RotaryConfig
from pagedchat.models.decoder_config import DecoderConfig
from pagedchat.models.native import read_native
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.graphs.objections import objection_to
from tests.models.families.tiny_families import CONFIGS
from tests.runtime.graphs.case import MODEL_LEN, VOCAB_SIZE, described_model

HEAD_DIM, WIDTH, MIDDLE = 64, 256, 512
KINDS = tuple(
    kind for kind in CONFIGS if not objection_to(read_native(copy.deepcopy(CONFIGS[kind]).to_dict()).config)
)
"""Those that chains of launches do."""


def family_config(name: str) -> DecoderConfig:
    """One of `KINDS`."""
    config = read_native(copy.deepcopy(CONFIGS[name]).to_dict()).config
    groups = config.heads.num_heads // config.heads.num_kv_heads
    narrow = {} if config.embedding_size is None else {"embedding_size": WIDTH // 2}
    return replace(
        config,
        vocab_size=VOCAB_SIZE,
        hidden_size=WIDTH,
        ffn_size=MIDDLE,
        heads=Heads(4, 4 // groups, HEAD_DIM),
        max_len=MODEL_LEN,
        rotaries=tuple(rotary and _widened(rotary) for rotary in config.rotaries),
        **narrow,
    )


def family_model(name: str, device: str, dtype: torch.dtype) -> NativeModel:
    """With random weights, such that tokens vary."""
    return described_model(family_config(name), device, dtype)


def _widened(rotary: RotaryConfig) -> RotaryConfig:
    if not isinstance(rotary.scaling, PairScaling):
        return rotary
    pairs = rotary.turned(HEAD_DIM) // 2
    factors = tuple(1 + i / pairs for i in range(pairs))
    return replace(rotary, scaling=PairScaling(factors, rotary.scaling.original_len))
