"""Replies of a form, one of each kind."""

import json
import re

from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["sloop", "ketch"]}, "masts": {"type": "integer", "maximum": 3, "minimum": 1}},
    "required": ["kind", "masts"],
    "additionalProperties": False,
}
GRAMMAR = """
root ::= "sail " direction " for " number " miles"
direction ::= "north" | "south"
number ::= [1-9] [0-9]?
"""


def main():
    llm = LLM(model="MODEL", max_model_len=100)

    def asked(prompt, **form):
        params = SamplingParams(structured_outputs=StructuredOutputsParams(**form), max_tokens=60)
        return llm.generate(prompt, sampling_params=params)[0].outputs[0].text

    assert asked("Is it windy?", choice=["yes", "no"]) in {"yes", "no"}
    assert re.fullmatch(r"[a-z]{3,9}@sea\.com", asked("An address:", regex=r"[a-z]{3,9}@sea\.com"))
    ship = json.loads(asked("A ship:", json=SCHEMA))
    assert ship["kind"] in {"sloop", "ketch"}
    order = asked("An order:", grammar=GRAMMAR)
    assert re.fullmatch(r"sail (north|south) for [1-9][0-9]? miles", order)
    print(ship, order)


if __name__ == "__main__":
    main()
