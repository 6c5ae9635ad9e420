"""The shapes that kernels are measured at: those of the stored peers, and what a chat model asks of its cache."""

from dataclasses import astuple, dataclass

BLOCK_SIZE = 16


class Shape:
    """Numbers of a shape, in the order that tables print them."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(str(number) for number in astuple(self))  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class DecodeShape(Shape):
    """One query token for each of `batch` sequences of `context` tokens."""

    batch: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    context: int

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V that a step has to read, in a type of two bytes."""
        return 2 * self.batch * self.context * self.num_kv_heads * self.head_size * 2


@dataclass(frozen=True, slots=True)
class PrefillShape(Shape):
    """One prompt of `num_tokens`, computed at once."""

    num_tokens: int
    num_heads: int
    num_kv_heads: int
    head_size: int

    @property
    def flops(self) -> int:
        """Operations of both products under the causal mask: half of the square."""
        return 4 * self.num_tokens**2 * self.num_heads * self.head_size // 2


@dataclass(frozen=True, slots=True)
class MergeShape(Shape):
    """Two partial results of `num_tokens` queries."""

    num_tokens: int
    num_heads: int
    head_size: int

    @property
    def moved_bytes(self) -> int:
        """Bytes of two inputs and one output of two-byte elements, each with its float32 log-sum-exp."""
        rows = self.num_tokens * self.num_heads
        return 3 * rows * self.head_size * 2 + 3 * rows * 4


@dataclass(frozen=True, slots=True)
class PrefixShape(Shape):
    """`batch` sequences over one prefix of `shared` tokens, each with `own` tokens after it."""

    batch: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    shared: int
    own: int

    @property
    def unshared(self) -> DecodeShape:
        """The same step where every sequence reads all of its tokens."""
        return DecodeShape(self.batch, self.num_heads, self.num_kv_heads, self.head_size, self.shared + self.own)

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V when the prefix is read once, in a type of two bytes."""
        return 2 * (self.shared + self.batch * self.own) * self.num_kv_heads * self.head_size * 2


@dataclass(frozen=True, slots=True)
class GatherShape(Shape):
    """`num_tokens` cached tokens of one layer."""

    num_tokens: int
    num_kv_heads: int
    head_size: int

    @property
    def moved_bytes(self) -> int:
        """Bytes of K and V, two bytes an element, read and written."""
        return 2 * 2 * self.num_tokens * self.num_kv_heads * self.head_size * 2


@dataclass(frozen=True, slots=True)
class WriteShape(Shape):
    """`num_tokens` new tokens, of which `per_sequence` follow one another: one in decode, a chunk in prefill."""

    num_tokens: int
    per_sequence: int
    num_kv_heads: int
    head_size: int

    @property
    def moved_bytes(self) -> int:
        """Bytes of K and V, two bytes an element, read and written."""
        return 2 * 2 * self.num_tokens * self.num_kv_heads * self.head_size * 2


@dataclass(frozen=True, slots=True)
class BlocksShape(Shape):
    """Whole blocks of a model's cache: of `num_layers` layers, K and V."""

    num_blocks: int
    num_layers: int
    num_kv_heads: int
    head_size: int

    @property
    def block_elements(self) -> int:
        """Elements of one block in one layer, of K or of V."""
        return BLOCK_SIZE * self.num_kv_heads * self.head_size

    @property
    def num_bytes(self) -> int:
        """Bytes of all these blocks, two bytes an element."""
        return self.num_blocks * self.num_layers * 2 * self.block_elements * 2


DECODE = (
    DecodeShape(1, 12, 12, 64, 256),
    DecodeShape(8, 12, 12, 64, 256),
    DecodeShape(64, 12, 12, 64, 256),
    DecodeShape(256, 12, 12, 64, 256),
    DecodeShape(1, 12, 12, 64, 2048),
    DecodeShape(8, 12, 12, 64, 1024),
    DecodeShape(64, 12, 12, 64, 1024),
    DecodeShape(256, 12, 12, 64, 1024),
    DecodeShape(1, 32, 8, 128, 32768),
    DecodeShape(8, 32, 8, 128, 8192),
    DecodeShape(64, 32, 8, 128, 4096),
    DecodeShape(256, 32, 8, 128, 1024),
)
BYTE_DECODE = (
    DecodeShape(1, 32, 8, 128, 32768),
    DecodeShape(8, 32, 8, 128, 32768),
    DecodeShape(64, 32, 8, 128, 4096),
    DecodeShape(1, 32, 8, 64, 8192),
    DecodeShape(8, 12, 12, 64, 1024),
)
"""Over a cache of one byte an element too: long contexts, where it pays, and some that are not."""
PREFILL = (
    PrefillShape(2048, 12, 12, 64),
    PrefillShape(8192, 12, 12, 64),
    PrefillShape(2048, 32, 8, 128),
    PrefillShape(8192, 32, 8, 128),
)
MERGE = (MergeShape(512, 16, 32), MergeShape(512, 16, 128), MergeShape(4096, 32, 128))
PREFIX = (PrefixShape(64, 12, 12, 64, 1024, 64), PrefixShape(64, 32, 8, 128, 1024, 64))
WRITE = (*(WriteShape(num_tokens, 1, 12, 64) for num_tokens in (1, 64, 256)), WriteShape(2048, 2048, 12, 64))
GATHER = (GatherShape(8192, 12, 64),)
COPY = tuple(BlocksShape(num_pairs, 12, 12, 64) for num_pairs in (1, 8, 64, 512))
SWAP = tuple(BlocksShape(num_pairs, 12, 12, 64) for num_pairs in (64, 512))
