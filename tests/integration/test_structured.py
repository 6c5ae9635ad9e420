"""Replies held to a form, through the whole engine: each parses and validates, whatever the model would say."""

import json
from collections.abc import Iterator

import jsonschema
import pytest
from msgspec.structs import replace

from pagedchat import LLM, SamplingParams
from pagedchat.errors import InvalidValueError
from pagedchat.structured.params import StructuredOutputsParams as Form
from tests.runtime.structured.schemas import schemas

pytest.importorskip("llguidance")


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    """The model in the box."""
    with LLM(device="cpu", num_blocks=1500, max_num_seqs=32) as llm:
        yield llm


def test_two_hundred_schemas_are_kept(llm: LLM) -> None:
    wanted = list(schemas())
    params = [
        replace(llm.sampling_defaults, max_tokens=200, temperature=i % 2, structured_outputs=Form(json=schema))
        for i, schema in enumerate(wanted)
    ]
    outputs = llm.generate(["Answer as JSON:"] * len(wanted), params, use_tqdm=False)
    for schema, output in zip(wanted, outputs, strict=True):
        reply = output.outputs[0]
        assert reply.finish_reason == "stop", (schema, reply.text)
        jsonschema.Draft202012Validator(schema).validate(json.loads(reply.text))


PERSON = {
    "type": "object", "required": ["name", "age", "tags"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 2, "maxItems": 4},
    },
}  # fmt: skip


def drawn(seed: int, **values: object) -> SamplingParams:
    return SamplingParams(
        temperature=0.9, seed=seed, max_tokens=120, structured_outputs=Form(json=PERSON), **values
    )


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_replies_that_are_preempted_go_on_in_their_form(llm: LLM, mode: str) -> None:
    prompts, params = [f"Person {i} as JSON:" for i in range(8)], [drawn(i) for i in range(8)]
    wanted = [output.outputs[0].text for output in llm.generate(prompts, params, use_tqdm=False)]
    with LLM(device="cpu", num_blocks=14, block_size=8, swap_space="64MiB", preemption_mode=mode) as small:
        outputs = small.generate(prompts, params, use_tqdm=False)
        assert small.stats().preemptions > 3
    assert [output.outputs[0].text for output in outputs] == wanted
    for output in outputs:
        jsonschema.validate(json.loads(output.outputs[0].text), PERSON)


def test_a_fork_in_the_middle_of_a_reply_keeps_the_form(llm: LLM) -> None:
    core, encode = llm._engine._core, llm.tokenizer.encode
    source = core.open()
    core.extend(source, encode("A person as JSON:").ids, drawn(1))
    while len(core.sequences[source].output_token_ids) < 8:
        core.step()
    forks = [source, *(core.fork(source) for _ in range(3))]
    while core.has_work:
        core.step()
    texts = [llm.tokenizer.decode(core.sequences[seq_id].output_token_ids) for seq_id in forks]
    for seq_id in forks:
        core.close(seq_id)
    assert len(set(texts)) > 1
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)


def test_what_cannot_be_held_to_is_refused_and_nothing_is_held(llm: LLM) -> None:
    free = llm.stats().blocks_free
    with pytest.raises(InvalidValueError, match=r"structured_outputs\.json cannot be held to"):
        llm.generate(["a", "b"], [drawn(1), replace(drawn(2), structured_outputs=Form(json={"type": "no"}))])
    assert llm.stats().blocks_free == free
    assert not llm._engine._core.sequences
    with pytest.raises(InvalidValueError, match="ignore_eos"):
        drawn(1, ignore_eos=True)
