"""What the model's steps are made of, for people."""

KERNELS = {"cuda": "CUDA kernels", "cpu": "CPU kernels", "torch": "torch"}


def steps_by(kernels: str, attention_backend: str) -> str:
    """See `EngineReady`; older recordings and programs tell of attention alone."""
    return KERNELS.get(kernels) or f"{attention_backend} attention"
