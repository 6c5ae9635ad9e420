"""Stand-ins for what the engine's benchmark runs: an engine, its clock, and shapes that are quick to make."""

from dataclasses import dataclass, field

from pagedchat.bench.random_checkpoint import LLAMA_1B, OPT_125M

TINY_OPT = OPT_125M | {
    "vocab_size": 304, "hidden_size": 64, "num_hidden_layers": 2, "ffn_dim": 96, "num_attention_heads": 4,
    "max_position_embeddings": 256, "word_embed_proj_dim": 64,
}  # fmt: skip
TINY_LLAMA = LLAMA_1B | {
    "vocab_size": 304, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@dataclass
class FakeEngine:
    """Takes a second for a prompt's first token and a tenth for each further step, whatever their number."""

    name: str = "pagedchat"
    now: float = 0.0
    lacks: int = 0
    """Tokens by which every reply is short."""
    settled_after: list[int] = field(default_factory=list)
    asked: list[tuple[list[list[int]], int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def settle(self) -> None:
        self.settled_after.append(len(self.asked))

    def generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        self.asked.append((prompts, new_tokens))
        self.now += 1 + 0.1 * (new_tokens - 1)
        return [[0] * (new_tokens - self.lacks)] * len(prompts)
