"""How models write that they call tools, and which of it stands in a reply.

=============  =================================================================================================
hermes         `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several, text before (Hermes, Qwen)
mistral        `[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]` or `[TOOL_CALLS]name{...}`, text before
llama3_json    the whole reply is `{"name": ..., "parameters": {...}}`, several with `;` between
=============  =================================================================================================

`auto` goes by the marks that the reply has; one without marks counts only with a name among the tools, as a user
may have asked for JSON.
"""

from typing import Literal, get_args

ToolFormat = Literal["auto", "hermes", "llama3_json", "mistral", "none"]
TOOL_FORMATS: tuple[str, ...] = get_args(ToolFormat)

HERMES, MISTRAL, PYTHON_TAG = "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>"
HERMES_END = "</tool_call>"
