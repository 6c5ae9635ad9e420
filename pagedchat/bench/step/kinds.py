"""What a kernel of a decode step does, from its name. Pure text."""

import re

_KINDS = (
    ("sums over ranks", r"reduce_add_norm|nccl"),
    ("attention", r"attention|decode_s(plit|imt|hared)|prefill_|merge_attn|flash|fmha"),
    ("whole layers", r"decode_chain|persistent_decode|streamed_layers"),
    ("experts", r"expert|route_|group_pairs"),
    ("products", r"qkv_to_cache|streamed_qkv|wide_gates|few_bits"),
    ("next token", r"argmax|sample|logits|advance|next_token|streamed_vocabulary|screen|topk|sort"),
    ("cache writes and slots", r"to_cache|and_cache|slots|copy_blocks|swap_blocks"),
    ("norms", r"norm"),
    ("embedding", r"embed|gather|index|embedding"),
    ("products", r"gemm|gemv|cutlass|cublas|nvjet|small_batch_linear|linear|splitk|matmul|sm90_xmma"),
    ("copies", r"memcpy|memset|copy"),
)
"""Kind and what a name of it contains; the first that fits counts: of two words, the rarer."""
WORK = frozenset({"attention", "whole layers", "experts", "products"})
"""Kinds that only a model's forward pass has."""
OTHERS = "everything else (element by element)"


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name, mangled or not."""
    name = kernel.lower()
    return next((kind for kind, pattern in _KINDS if re.search(pattern, name)), OTHERS)
