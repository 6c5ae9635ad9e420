"""Loss on the assistant's words, source by source, while training. See `evaluate.py` for finished checkpoints."""

from collections import defaultdict

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import OPTForCausalLM

from tools.toy_model.corpus import Corpus
from tools.toy_model.soft_labels import batches_by_length

ALL = "all"


@torch.inference_mode()
def losses(model: OPTForCausalLM, corpus: Corpus) -> dict[str, float]:
    """Mean negative log-likelihood in nats per token: by source, and `all`.

    Each conversation is read by itself from position 0, as a chat is.
    """
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for batch, inputs in batches_by_length(corpus, 0, len(corpus.sources)):
        tokens = torch.from_numpy(inputs).to(model.device)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.device.type == "cuda"):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        nats = cross_entropy(logits.float().transpose(1, 2), tokens[:, 1:], reduction="none").cpu().numpy()
        for row, index in enumerate(batch):
            spoken = corpus.spoken[corpus.starts[index] + 1 : corpus.starts[index + 1]]
            for source in (corpus.sources[index], ALL):
                sums[source] += float(np.sum(nats[row, : len(spoken)][spoken]))
                counts[source] += int(spoken.sum())
    return {source: sums[source] / max(1, counts[source]) for source in sorted(sums)}
