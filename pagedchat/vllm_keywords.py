"""What vLLM's users may say and what means nothing here: one table, a sentence for each. Knows names alone.

Values with which nothing is asked for are taken in silence, so that a script may keep its line; of anything else it
is told why it does nothing, before anything is loaded or run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pagedchat.bounds import shown
from pagedchat.errors import InvalidValueError


class NoMeaning(NamedTuple):
    """A keyword that nothing follows from."""

    why: str
    """In a sentence."""
    neutral: tuple[object, ...] = (None,)
    """Values by which nothing is asked for."""


_ONE_GPU = NoMeaning("Models are cut by tensor_parallel_size alone, over the GPUs of one machine.", (1, None))
_TEXT_ALONE = NoMeaning("Prompts are text or tokens, nothing else.", (None, "", {}))
_FROM_DISK = NoMeaning("Checkpoints are read as they lie in their folder or in the hub's cache.", (None, "auto"))
_ONE_REVISION = NoMeaning("Of a hub id its newest revision is taken: give the folder of another one.")
_OWN_STEPS = NoMeaning("Which steps are captured, and how, the engine finds out by itself.", (None, False, {}))
_OWN_STATS = NoMeaning(
    "What the engine counts is in llm.stats(), and nothing of it is logged.", (None, True, False)
)
_ONE_GUIDE = "Replies are held to their forms by llguidance."
_NO_ADAPTERS = NoMeaning("There are no LoRA adapters: merge them into the weights.", (None, False))

LLM_KEYWORDS: Mapping[str, NoMeaning] = {
    "trust_remote_code": NoMeaning(
        "Code of a checkpoint is never run: models run by our own modules or by those of transformers.",
        (False, None),
    ),
    "pipeline_parallel_size": _ONE_GPU,
    "data_parallel_size": _ONE_GPU,
    "distributed_executor_backend": _ONE_GPU,
    "disable_custom_all_reduce": NoMeaning(_ONE_GPU.why, (None, True, False)),
    "tokenizer_mode": NoMeaning("Tokenizers are the fast ones of the tokenizers library.", ("auto", "fast", None)),
    "revision": _ONE_REVISION,
    "tokenizer_revision": _ONE_REVISION,
    "code_revision": _ONE_REVISION,
    "load_format": _FROM_DISK,
    "download_dir": _FROM_DISK,
    "hf_token": NoMeaning("A token for the hub is read from the environment: HF_TOKEN."),
    "hf_overrides": NoMeaning("A config is read as it is: change config.json.", (None, {})),
    "rope_scaling": NoMeaning("A config is read as it is: change config.json.", (None, {})),
    "task": NoMeaning("Models generate text.", (None, "auto", "generate")),
    "runner": NoMeaning("Models generate text.", (None, "auto", "generate")),
    "cpu_offload_gb": NoMeaning("Weights are all on the GPU or all on the CPU (device).", (0, None)),
    "max_seq_len_to_capture": NoMeaning(_OWN_STEPS.why, (None, 8192)),
    "compilation_config": _OWN_STEPS,
    "disable_async_output_proc": _OWN_STEPS,
    "enable_chunked_prefill": NoMeaning("Prompts are always computed in chunks.", (None, True)),
    "max_logprobs": NoMeaning("Up to 20 most likely tokens are told of.", (None, 20)),
    "logprobs_mode": NoMeaning("Logprobs are the model's own, before any rule.", (None, "raw_logprobs")),
    "enable_lora": _NO_ADAPTERS,
    "disable_log_stats": _OWN_STATS,
    "limit_mm_per_prompt": _TEXT_ALONE,
    "mm_processor_kwargs": _TEXT_ALONE,
    "allowed_local_media_path": _TEXT_ALONE,
    "allowed_media_domains": _TEXT_ALONE,
    "convert": NoMeaning("Models generate text.", (None, "auto", "none")),
    "pooler_config": NoMeaning("Models generate text."),
    "chat_template": NoMeaning("A template is given to chat()."),
    "structured_outputs_config": NoMeaning("Replies are held to their forms by llguidance.", (None, {})),
    "guided_decoding_backend": NoMeaning(
        "Replies are held to their forms by llguidance.", (None, "auto", "guidance")
    ),
    "attention_config": NoMeaning("Which kernels attend is said by attention_backend.", (None, {})),
    "profiler_config": NoMeaning("`pagedchat bench step` looks into steps.", (None, {})),
    "logits_processors": NoMeaning("What changes logits are the parameters of requests: no code of a caller's."),
    "generation_config": NoMeaning("A model's generation_config.json is read where there is one.", (None, "auto")),
    "override_generation_config": NoMeaning("Give every request the parameters that it is to have.", (None, {})),
    "scheduling_policy": NoMeaning("First come, first served.", (None, "fcfs")),
    "async_scheduling": _OWN_STEPS,
    "served_model_name": NoMeaning("A model is called what it was asked for by."),
    "enable_expert_parallel": NoMeaning(_ONE_GPU.why, (None, False)),
}
"""Of `LLM()`."""

LLM_METHODS: Mapping[str, str] = {
    **dict.fromkeys(("encode", "embed", "classify", "score", "reward"), "Models generate text."),
    "sleep": "close() gives the memory back.",
    "wake_up": "close() gives the memory back, and another LLM is made anew.",
    **dict.fromkeys(("collective_rpc", "apply_model"), "The model is this process's own, and not to be changed."),
    **dict.fromkeys(("start_profile", "stop_profile"), "`pagedchat bench step` looks into steps."),
    "get_metrics": "What the engine counts is in stats().",
}
"""Of vLLM's `LLM`, those that this one does not have, and what there is instead."""

CALL_KEYWORDS: Mapping[str, NoMeaning] = {
    "lora_request": _NO_ADAPTERS,
    "priority": NoMeaning("All prompts of a call run together.", (None, [], 0)),
    "concurrency_limit": NoMeaning("All prompts of a call run together."),
    "tokenization_kwargs": NoMeaning("Prompts are tokenised as the tokenizer does it.", (None, {})),
    "chat_template_content_format": NoMeaning("Contents are text.", (None, "auto", "string")),
    "mm_processor_kwargs": _TEXT_ALONE,
}
"""Of `LLM.generate`, `LLM.chat` and `LLM.beam_search`."""

SAMPLING_KEYWORDS: Mapping[str, NoMeaning] = {
    "logits_processors": NoMeaning("What changes logits are the parameters that there are: no code of a caller's."),
    "guided_decoding": NoMeaning("Newer releases of vLLM call it structured_outputs, and so does this one."),
    "extra_args": NoMeaning("Nobody would read it.", (None, {})),
}
"""Of `SamplingParams()`."""

_COMPACT = "JSON is written without blanks but those after a comma and a colon."
FORM_KEYWORDS: Mapping[str, NoMeaning] = {
    "disable_any_whitespace": NoMeaning(_COMPACT, (None, False, True)),
    "whitespace_pattern": NoMeaning(_COMPACT),
    "disable_additional_properties": NoMeaning("A schema says so: additionalProperties.", (None, False)),
    "disable_fallback": NoMeaning(_ONE_GUIDE, (None, False, True)),
    "structural_tag": NoMeaning("Give a grammar that has the tags in it."),
}
"""Of `StructuredOutputsParams()`."""


class TakesOthers(msgspec.StructMeta):
    """Of structs that take vLLM's keywords that have no meaning here: those in their `_no_meaning`."""

    if not TYPE_CHECKING:  # where the fields are all there is

        def __call__(cls, **given: Any) -> Any:  # noqa: N805, D102 - a class's own
            others = {name: given.pop(name) for name in cls._no_meaning if name in given}
            check_keywords(f"{cls.__name__}()", others, cls._no_meaning)
            return super().__call__(**given)


def check_keywords(call: str, given: Mapping[str, object], table: Mapping[str, NoMeaning]) -> None:
    """Let pass what asks for nothing.

    Args:
        call: what was called, as `"LLM()"`.
        given: keywords that it does not have.
        table: those that vLLM's has.

    Raises:
        InvalidValueError: one that asks for something that is not there; nothing has happened then.
        TypeError: one that vLLM has not either.
    """
    for name, value in given.items():
        if name not in table:
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}")
        why, neutral = table[name]
        if not any(value is each or (type(value) is type(each) and value == each) for each in neutral):
            raise InvalidValueError(f"{name} is {shown(value)}.", f"That means nothing here. {why}")
