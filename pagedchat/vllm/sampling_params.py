"""`vllm.sampling_params`."""

from pagedchat.engine.groups.beam_params import BeamSearchParams
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.structured.params import StructuredOutputsParams

__all__ = ["BeamSearchParams", "RequestOutputKind", "SamplingParams", "StructuredOutputsParams"]
