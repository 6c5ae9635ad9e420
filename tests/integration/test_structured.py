"""Replies held to a form, through the whole engine: each parses and validates, whatever the model would say."""

import json
from collections.abc import Iterator

import jsonschema
import pytest
from msgspec.structs import replace

from pagedchat import LLM
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
