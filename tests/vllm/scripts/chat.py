"""A conversation, and several; what is sampled is set on the command line, and changed on the model's own."""

from vllm import LLM, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

TEMPLATE = "{% for m in messages %}{{ m.role }}> {{ m.content }}\n{% endfor %}assistant> "
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}}}]


def parsed():
    parser = FlexibleArgumentParser()
    EngineArgs.add_cli_args(parser)
    parser.set_defaults(model="MODEL")
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument("--max-tokens", type=int)
    sampling.add_argument("--temperature", type=float)
    return vars(parser.parse_args())


def main(args):
    given = {name: args.pop(name) for name in ("max_tokens", "temperature")}
    llm = LLM(**args)
    params = llm.get_default_sampling_params()
    for name, value in given.items():
        if value is not None:
            setattr(params, name, value)
    conversation = [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "When is the tide?"}]},
    ]
    (output,) = llm.chat(conversation, params, use_tqdm=False)
    assert len(output.outputs[0].token_ids) <= given["max_tokens"]
    asked = [
        *conversation,
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
        ]},
        {"role": "tool", "tool_call_id": "1", "content": "at noon"},
    ]  # fmt: skip
    outputs = llm.chat([conversation] * 3, params, chat_template=TEMPLATE)
    outputs += llm.chat(asked, params, tools=TOOLS, chat_template=TEMPLATE)
    for each in outputs:
        print(repr(each.outputs[0].text))


if __name__ == "__main__":
    main(parsed())
