"""`vllm.outputs`."""

from pagedchat.outputs import BeamSearchOutput, CompletionOutput, Logprob, RequestOutput

__all__ = ["BeamSearchOutput", "CompletionOutput", "Logprob", "RequestOutput"]
