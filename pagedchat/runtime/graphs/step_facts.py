"""What a captured step is chosen by: a model, a GPU, a batch. Plain values; knows no tensor, and no rule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pagedchat.jit.architecture import architecture_of
from pagedchat.jit.driver import Gpu
from pagedchat.ops.common.model_sizes import ModelSizes, ProductSizes
from pagedchat.ops.quantized.weight_form import WHOLE, WeightForm
from pagedchat.ops.whole_step.plan import PersistentShape

HEAD, VALUES, EXPERTS = "head", "values", "experts"
"""The product with the vocabulary, beside those of a layer; and the rows of values in the first of these."""

_TENSOR_CORE_ELEMENTS = {"float16": (7, 5), "bfloat16": (8, 0)}
"""With the compute capability of the first GPU whose tensor cores multiply them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for all steps of a model that is loaded."""

    sizes: ModelSizes
    objection: str
    """What no chain of launches does of this model, in words that go after "since"; empty: nothing."""
    whole_objection: str
    """What launches that are whole steps do not do of it, likewise."""
    element: str
    """Of weights, and of the cache where nothing else is said: `"float16"`."""
    block_size: int
    """Token slots in a block of the cache."""
    gpu: Gpu | None
    """None: the ops run on a CPU, as tests have it."""
    is_aligned: bool = True
    """Whether all tensors start at 16 bytes; see `PersistentModel.is_aligned`."""
    cache_kind: str = ""
    """Of a cache of one byte an element: `"fp8"`; empty: it is of `element`."""
    batch_invariant: bool = False
    """Whether a token's numbers are to follow from its own sequence alone."""
    forms: Mapping[str, WeightForm] = field(default_factory=dict)
    """In which forms weights are, by the names of products, `HEAD`, `VALUES` and `EXPERTS`; empty: all whole."""
    layers_differ: bool = False
    """Whether some layers have others than `forms` says, which is what most of them have."""

    def form(self, name: str) -> WeightForm:
        """Of the weight of a product, or of `HEAD`."""
        return self.forms.get(name, WHOLE)

    @property
    def values_form(self) -> WeightForm | None:
        """Of values, where it is another one than that of queries and keys, and they are a product of their own."""
        form = self.forms.get(VALUES)
        return None if form == self.form("qkv") else form

    @property
    def products(self) -> tuple[ProductSizes, ...]:
        """Of a layer: those of its sizes, and values behind queries and keys where they are apart."""
        qkv, *others = self.sizes.products
        if self.values_form is None:
            return self.sizes.products
        rows = self.sizes.num_kv_heads * self.sizes.head_dim
        heads = qkv._replace(out_features=qkv.out_features - rows)
        return heads, qkv._replace(name=VALUES, out_features=rows), *others

    @property
    def shape(self) -> PersistentShape:
        """The model, as the kernel of whole steps sees it."""
        return PersistentShape.of(self.sizes, self.block_size, gated=self.sizes.gated)

    @property
    def missing_tensor_cores(self) -> str:
        """Why products are not done on tensor cores, likewise in words; empty if they are."""
        first = _TENSOR_CORE_ELEMENTS.get(self.element)
        if first is None:
            return f"tensor cores do not multiply {self.element}"
        if self.gpu is not None and self.gpu.compute_capability < first:
            return f"tensor cores multiply {self.element} from {architecture_of(*first)} on"
        return ""

    @property
    def missing_warpgroups(self) -> str:
        """The same for products by warpgroups."""
        if self.gpu is None or self.gpu.compute_capability != (9, 0):
            return "products by warpgroups exist on sm_90 alone"
        return self.missing_tensor_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFacts:
    """A decode step to be captured."""

    setting: Setting
    rows: int
    """Sequences, padding included."""
    context_len: int
    """No sequence is longer, this step's token included."""
    choice: Literal["greedy", "shortlist", "drawn"]
    """Whether tokens are the most likely ones or drawn."""
    shares: bool = False
    """Whether groups of rows read a beginning together."""
    reads_rows: bool = False
    """Whether rows read what others of the same step write, being of one sequence."""
    without_room: frozenset[str] = frozenset()
    """Names of steps whose thread blocks have turned out to find no room on the GPU at the same time."""
    without_trust: frozenset[str] = frozenset()
    """Names of steps that have given other results than the model when they were tried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFacts:
    """A pass over chunks of prompts to be captured."""

    setting: Setting
    num_tokens: int
    """Of all chunks together, padding included."""
    num_blocks: int
    """Width of the block tables."""
    without_trust: frozenset[str] = frozenset()
    """As in `DecodeFacts`."""
