"""What the model's steps are made of, for people. See `EngineReady.kernels`."""

KERNELS = {"cuda": "CUDA kernels", "cpu": "CPU kernels", "torch": "torch"}
