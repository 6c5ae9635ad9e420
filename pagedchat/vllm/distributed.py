"""`vllm.distributed`: what scripts call when they are done with a model."""

import gc


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """Find what nobody has any more; an `LLM` among it gives its memory back."""
    gc.collect()
