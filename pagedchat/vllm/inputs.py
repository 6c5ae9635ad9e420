"""`vllm.inputs`."""

from pagedchat.requests.prompts import Prompt as PromptType
from pagedchat.requests.prompts import TextPrompt, TokensPrompt

__all__ = ["PromptType", "TextPrompt", "TokensPrompt"]
