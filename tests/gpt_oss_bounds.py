"""Which bounds of gpt-oss's gates a test may ask for. Transformers takes them from a config from some release on;
before that its modules have those that the released models have, whatever a config says.
"""

from typing import Any

from transformers import GptOssConfig


def bounds(**wanted: float) -> dict[str, Any]:
    """Keywords of a config: `swiglu_limit` and `swiglu_alpha`, where transformers knows them."""
    known = any("swiglu_limit" in vars(kind).get("__annotations__", {}) for kind in GptOssConfig.__mro__)
    return wanted if known else {}
