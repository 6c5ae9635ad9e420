"""`vllm.outputs`."""

from pagedchat.outputs import BeamSearchOutput, CompletionOutput, Logprob, RequestOutput, RequestStateStats

__all__ = ["BeamSearchOutput", "CompletionOutput", "Logprob", "RequestOutput", "RequestStateStats"]
