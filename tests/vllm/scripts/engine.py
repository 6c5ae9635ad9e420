"""Requests that come one after another, step by step, with what the model thought of their tokens."""

from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
from vllm.utils import FlexibleArgumentParser


def requests():
    return [
        ("A robot may not", SamplingParams(temperature=0.0, logprobs=1, prompt_logprobs=1)),
        ("To be or not", SamplingParams(temperature=0.8, top_k=5, presence_penalty=0.2)),
        ("What is it?", SamplingParams(n=2, best_of=4, temperature=0.8, top_p=0.95, frequency_penalty=0.1)),
    ]


def main(args):
    engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(args))
    waiting, finished = requests(), {}
    while waiting or engine.has_unfinished_requests():
        if waiting:
            prompt, params = waiting.pop(0)
            engine.add_request(str(len(waiting)), prompt, params)
        outputs: list[RequestOutput] = engine.step()
        finished.update({output.request_id: output for output in outputs if output.finished})
    assert sorted(finished) == ["0", "1", "2"]
    told = finished["2"]
    assert told.prompt_logprobs[0] is None
    assert len(told.prompt_logprobs) == len(told.prompt_token_ids)
    assert len(finished["0"].outputs) == 2
    print(told)


if __name__ == "__main__":
    parser = FlexibleArgumentParser(description="an engine, directly")
    parser = EngineArgs.add_cli_args(parser)
    main(parser.parse_args())
