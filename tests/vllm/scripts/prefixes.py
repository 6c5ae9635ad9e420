"""The same prompts with and without a cache of prefixes."""

from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory

PREFIX = "Once upon a time there was a ship that had sailed around the whole world, and it was tired. " * 2
PROMPTS = [PREFIX + end for end in ("It said:", "The captain said:", "The wind said:")]
PARAMS = SamplingParams(temperature=0.0, max_tokens=8)


def texts(llm):
    return [output.outputs[0].text for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]


def main():
    plain = LLM(model="MODEL", enable_prefix_caching=False, gpu_memory_utilization=0.4)
    before = texts(plain)
    del plain
    cleanup_dist_env_and_memory()

    llm = LLM(model="MODEL", enable_prefix_caching=True, gpu_memory_utilization=0.4)
    llm.generate(PROMPTS[0], PARAMS)
    found = [output.num_cached_tokens for output in llm.generate(PROMPTS, PARAMS)]
    assert min(found) > 30, found
    print("the same:", texts(llm) == before)


if __name__ == "__main__":
    main()
