"""Prompts completed, with alternatives told."""

from vllm import LLM, SamplingParams
from vllm.outputs import RequestOutput


def main():
    llm = LLM(model="MODEL", trust_remote_code=False, tensor_parallel_size=1, gpu_memory_utilization=0.5)
    prompts = ["The sea is", "The wind was", {"prompt": "A ship"}, {"prompt_token_ids": [5, 6, 7]}]
    outputs: list[RequestOutput] = llm.generate(prompts, SamplingParams(temperature=0.8, top_p=0.95, logprobs=2))
    for output in outputs:
        (completion,) = output.outputs
        assert len(completion.logprobs) == len(completion.token_ids)
        print(f"{output.prompt!r} -> {completion.text!r} ({completion.finish_reason})")


if __name__ == "__main__":
    main()
