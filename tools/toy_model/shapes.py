"""Sizes of the model: OPT's architecture with heads of 64."""

from dataclasses import dataclass

from transformers import OPTConfig

from tools.toy_model.bpe import BOS, EOS, PAD

HEAD_SIZE = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """Width and depth; the feed-forward part is four times as wide."""

    hidden_size: int
    num_layers: int


SHAPES = {
    "tiny": Shape(64, 2),
    "small": Shape(256, 6),
    "toy": Shape(384, 6),
    "deep": Shape(320, 9),
    "large": Shape(512, 8),
    "teacher": Shape(768, 12),
}
"""`toy` is the one in the box, `tiny` is for tests, `small` and `large` are for comparison."""


def opt_config(shape: Shape, vocab_size: int, context: int, dropout: float) -> OPTConfig:
    """The config of a model of this shape."""
    return OPTConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        word_embed_proj_dim=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.hidden_size // HEAD_SIZE,
        ffn_dim=4 * shape.hidden_size,
        max_position_embeddings=context,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=0.0,
        layerdrop=0.0,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        tie_word_embeddings=True,
    )
