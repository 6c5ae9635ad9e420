"""The commands `train` and `label`: files in, files out, around `train.py` and `soft_labels.py`."""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from transformers import OPTForCausalLM

from tools.toy_model.bpe import load_tokenizer
from tools.toy_model.checkpoint import save_checkpoint
from tools.toy_model.conversations import read_jsonl
from tools.toy_model.corpus import Corpus, encode, load_corpus
from tools.toy_model.shapes import SHAPES, opt_config
from tools.toy_model.soft_labels import label, load_soft_labels
from tools.toy_model.train import Settings, train
from tools.toy_model.validate import ALL, losses


def run_training(args: argparse.Namespace) -> None:
    """Train one model; write the checkpoint and `training.jsonl`, a line for each look at the validation loss.

    Raises:
        FileNotFoundError: `prepare` or `tokenizer` did not run.
    """
    tokenizer = load_tokenizer(args.data)
    corpus, valid = corpus_of(args.data, "train", args.context), corpus_of(args.data, "valid", args.context)
    model = _model(args, tokenizer.get_vocab_size())
    size = sum(p.numel() for p in model.parameters())
    print(f"{size / 1e6:.2f} M parameters; {len(corpus.tokens):,} tokens in {len(corpus.sources):,} conversations")
    args.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with (args.out / "training.jsonl").open("w", encoding="utf-8") as curve:

        def log(step: int, loss: float, speed: float) -> None:
            by_source = losses(model, valid)
            minutes = (time.perf_counter() - started) / 60
            row: dict[str, object] = {
                "step": step,
                "minutes": round(minutes, 2),
                "tokens_per_second": round(speed),
                "train": round(loss, 4),
            }
            row["valid"] = {source: round(value, 4) for source, value in by_source.items()}
            curve.write(json.dumps(row) + "\n")
            curve.flush()
            print(
                f"step {step:6,}/{args.steps:,}  {minutes:5.1f} min  {speed:10,.0f} tok/s  train {loss:.3f}  "
                f"valid {by_source[ALL]:.3f} (perplexity {math.exp(by_source[ALL]):.1f})",
                flush=True,
            )

        soft = load_soft_labels(args.soft_labels) if args.soft_labels else None
        if soft is not None and len(soft.ids) != len(corpus.tokens):
            raise ValueError(
                f"the soft labels are of {len(soft.ids):,} tokens, the text has {len(corpus.tokens):,}"
            )
        train(model, corpus, _settings(args), soft, torch.device(args.device), log)
    save_checkpoint(model, tokenizer, args.out, torch.float16)
    print(f"written to {args.out}")


def run_labelling(args: argparse.Namespace) -> None:
    """Write the soft labels of one part of the training text.

    Raises:
        FileNotFoundError: no data, or no teacher.
    """
    device = torch.device(args.device)
    teachers = [
        OPTForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval() for folder in args.teachers
    ]
    corpus = corpus_of(args.data, "train", int(teachers[0].config.max_position_embeddings))
    bounds = [len(corpus.sources) * part // args.parts for part in range(args.parts + 1)]
    first, last = bounds[args.part], bounds[args.part + 1]
    started = time.perf_counter()
    soft = label(teachers, corpus, first, last, args.k, lambda _: None)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    soft.save(args.out)
    print(f"{len(soft.ids):,} tokens labelled in {time.perf_counter() - started:.0f} s, in {args.out}.*")


def corpus_of(data: Path, name: str, context: int) -> Corpus:
    """The text in tokens: as `encode` wrote it, else from the JSON lines."""
    if (data / f"{name}.npz.xz").is_file():
        return load_corpus(data / f"{name}.npz.xz")
    return encode(list(read_jsonl(data / f"{name}.jsonl")), load_tokenizer(data), context)


def _model(args: argparse.Namespace, vocab_size: int) -> OPTForCausalLM:
    torch.manual_seed(args.seed)
    if args.start_from is not None:
        model = OPTForCausalLM.from_pretrained(args.start_from, dtype=torch.float32)
        model.config.dropout = args.dropout
        return model
    return OPTForCausalLM(opt_config(SHAPES[args.shape], vocab_size, args.context, args.dropout))


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(
        steps=args.steps,
        windows=args.windows,
        context=args.context,
        learning_rate=args.learning_rate,
        weight_decay=args.weight_decay,
        reply_share=args.reply_share,
        polish=args.polish,
        every_token=args.every_token,
        soft_share=args.soft_share if args.soft_labels else 0.0,
        own_soft_share=args.own_soft_share if args.soft_labels else None,
        seconds=None if args.minutes is None else 60 * args.minutes,
        log_every=args.log_every,
        seed=args.seed,
    )
