"""The likeliest replies, by their tokens."""

from vllm import LLM
from vllm.inputs import PromptType
from vllm.sampling_params import BeamSearchParams


def main():
    llm = LLM(model="MODEL")
    prompts: list[PromptType] = [{"prompt_token_ids": [5, 6, 7 + i]} for i in range(3)]
    outputs = llm.beam_search(prompts, BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True))
    for output in outputs:
        scores = [sequence.cum_logprob for sequence in output.sequences]
        assert scores == sorted(scores, reverse=True)
        assert {len(sequence.tokens) for sequence in output.sequences} == {9}
        print(output.sequences[0].text)


if __name__ == "__main__":
    main()
