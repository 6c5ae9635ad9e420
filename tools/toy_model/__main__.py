"""`python -m tools.toy_model COMMAND`: one command a step of the recipe. See README.md here."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BEGUN = time.perf_counter()
HERE = Path(__file__).resolve().parent
TEXTS = [HERE / "text", HERE / "text" / "polish"]
"""All of our own texts; those in `polish` came later, once for a polish after a long training."""
SIZE = "15 million"
CONTEXT = 2048
VOCABULARY = 8192


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user's ends in one line."""
    args = _parser().parse_args(argv)
    try:
        args.run(args)
    except (FileNotFoundError, ValueError) as error:
        print(f"tools.toy_model: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.toy_model", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    prepare = commands.add_parser("prepare", help="sources and our own texts -> train.jsonl, valid.jsonl")
    prepare.add_argument(
        "--collection", type=Path, help="folder with the public sources as train.jsonl[.xz], valid.jsonl[.xz]"
    )
    prepare.add_argument("--texts", type=Path, nargs="+", default=TEXTS, help="folders with our own texts")
    prepare.add_argument("--data", type=Path, required=True, help="folder for the two files")
    prepare.add_argument("--drills", type=float, default=1.0, help="share of the usual number of drills (1)")
    prepare.set_defaults(run=_prepare)
    tokenizer = commands.add_parser("tokenizer", help="train the tokenizer on train.jsonl")
    tokenizer.add_argument(
        "--data", type=Path, required=True, help="folder made by prepare; the tokenizer goes there too"
    )
    tokenizer.add_argument("--vocabulary", type=int, default=VOCABULARY)
    tokenizer.add_argument("--context", type=int, default=CONTEXT)
    tokenizer.set_defaults(run=_tokenizer)
    encode = commands.add_parser("encode", help="the text in tokens, train.npz.xz and valid.npz.xz, small to carry")
    encode.add_argument("--data", type=Path, required=True, help="folder made by prepare and tokenizer")
    encode.add_argument("--context", type=int, default=CONTEXT)
    encode.set_defaults(run=_encode)
    _add_train(commands.add_parser("train", help="train a model"))
    whole = commands.add_parser("whole", help="teacher, soft labels and the model in one go, by the clock")
    whole.add_argument("--data", type=Path, required=True, help="folder made by prepare and tokenizer")
    whole.add_argument("--out", type=Path, required=True, help="folder for the checkpoints and training.jsonl")
    whole.add_argument("--minutes", type=float, default=8.5, help="for all of it (8.5)")
    whole.add_argument("--device", default="cpu")
    whole.add_argument("--tiny", action="store_true", help="small shapes and part of the text, to try it out")
    whole.set_defaults(run=_whole)
    _add_label(commands.add_parser("label", help="soft labels of the training text from larger models"))
    blend = commands.add_parser("blend", help="the mean of two checkpoints' weights")
    blend.add_argument("first", type=Path)
    blend.add_argument("second", type=Path)
    blend.add_argument("--share", type=float, default=0.4, help="of the second (0.4)")
    blend.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    blend.set_defaults(run=_blend)
    losses = commands.add_parser("losses", help="loss by source of finished checkpoints, beside each other")
    losses.add_argument("models", type=Path, nargs="+", help="folders of checkpoints")
    losses.add_argument("--data", type=Path, required=True, help="folder made by prepare")
    losses.add_argument("--in-place", action="store_true", help="chats between people under their system prompts")
    losses.set_defaults(run=_losses)
    replies = commands.add_parser(
        "replies", help="replies to the prompts of a JSON-lines file, by pagedchat's engine"
    )
    replies.add_argument("models", type=Path, nargs="+", help="folders of checkpoints")
    replies.add_argument(
        "--prompts", type=Path, default=HERE / "newcomer_prompts.jsonl", help="{prompt, system?} a line"
    )
    replies.add_argument("--seed", type=int, default=1)
    replies.set_defaults(run=_replies)
    endings = commands.add_parser("endings", help="how many replies end by themselves, how many loop")
    endings.add_argument("model", type=Path)
    endings.add_argument("--data", type=Path, required=True, help="folder made by prepare")
    endings.add_argument("--prompts", type=int, default=200, help="prompts of the validation set (200)")
    endings.add_argument("--tokens", type=int, default=200, help="longest reply (200)")
    endings.set_defaults(run=_endings)
    return parser


def _add_train(train: argparse.ArgumentParser) -> None:
    from tools.toy_model.shapes import SHAPES  # noqa: PLC0415 - loads transformers

    train.add_argument("--data", type=Path, required=True, help="folder made by prepare and tokenizer")
    train.add_argument("--out", type=Path, required=True, help="folder for the checkpoint and its training.jsonl")
    train.add_argument("--shape", choices=SHAPES, default="toy")
    train.add_argument("--device", default="cpu")
    train.add_argument("--steps", type=int, default=9000)
    train.add_argument("--minutes", type=float, help="end by the clock, in place of --steps")
    train.add_argument("--windows", type=int, default=32, help="windows in a step")
    train.add_argument("--context", type=int, default=CONTEXT)
    train.add_argument("--learning-rate", type=float, default=1.2e-3)
    train.add_argument("--weight-decay", type=float, default=0.1)
    train.add_argument("--dropout", type=float, default=0.1)
    train.add_argument(
        "--reply-share",
        type=float,
        default=0.3,
        help="share of the steps, at the end, on the replies only",
    )
    train.add_argument("--polish", action="store_true", help="only a last polish of --start-from, on the replies")
    train.add_argument("--every-token", action="store_true", help="learn every token to the end (for teachers)")
    train.add_argument("--soft-labels", type=Path, nargs="*", default=[], help="parts written by label, in order")
    train.add_argument("--soft-share", type=float, default=0.7, help="share of the loss from soft labels")
    train.add_argument("--own-soft-share", type=float, help="the same for our own texts and drills")
    train.add_argument("--start-from", type=Path, help="a checkpoint to go on from")
    train.add_argument("--seed", type=int, default=1)
    train.add_argument("--log-every", type=int, default=500)
    train.set_defaults(run=_train)


def _add_label(label: argparse.ArgumentParser) -> None:
    label.add_argument("teachers", type=Path, nargs="+", help="folders of checkpoints with the same tokenizer")
    label.add_argument("--data", type=Path, required=True, help="folder made by prepare and tokenizer")
    label.add_argument("--out", type=Path, required=True, help="path of the part to write, without an ending")
    label.add_argument("--part", type=int, default=0, help="which part, from 0")
    label.add_argument("--parts", type=int, default=1, help="into how many the text is cut")
    label.add_argument("--k", type=int, default=32, help="likeliest tokens to keep")
    label.add_argument("--device", default="cpu")
    label.set_defaults(run=_label)


def _prepare(args: argparse.Namespace) -> None:
    from tools.toy_model.prepare import prepare  # noqa: PLC0415

    counts = prepare(args.collection, args.texts, args.data, SIZE, args.drills)
    for source, count in sorted(counts.items()):
        print(f"{count:8,}  {source}")
    print(f"{sum(counts.values()):8,}  conversations to train on, in {args.data}")


def _tokenizer(args: argparse.Namespace) -> None:
    from tools.toy_model.bpe import save_tokenizer, train_tokenizer  # noqa: PLC0415
    from tools.toy_model.conversations import read_jsonl  # noqa: PLC0415

    tokenizer = train_tokenizer(read_jsonl(args.data / "train.jsonl"), args.vocabulary)
    save_tokenizer(tokenizer, args.data, args.context)
    print(f"{tokenizer.get_vocab_size():,} tokens, in {args.data}")


def _encode(args: argparse.Namespace) -> None:
    from tools.toy_model.run_training import corpus_of  # noqa: PLC0415

    for name in ("train", "valid"):
        (args.data / f"{name}.npz.xz").unlink(missing_ok=True)
        corpus = corpus_of(args.data, name, args.context)
        corpus.save(args.data / f"{name}.npz.xz")
        print(f"{len(corpus.tokens):,} tokens, in {args.data / name}.npz.xz")


def _whole(args: argparse.Namespace) -> None:
    from tools.toy_model.whole import whole  # noqa: PLC0415

    loading = time.perf_counter() - BEGUN  # of torch and transformers
    whole(args.data, args.out, 60 * args.minutes - loading, args.device, args.tiny)


def _train(args: argparse.Namespace) -> None:
    from tools.toy_model.run_training import run_training  # noqa: PLC0415

    run_training(args)


def _label(args: argparse.Namespace) -> None:
    from tools.toy_model.run_training import run_labelling  # noqa: PLC0415

    run_labelling(args)


def _blend(args: argparse.Namespace) -> None:
    from tools.toy_model.blend import blend  # noqa: PLC0415

    blend(args.first, args.second, args.share, args.out)


def _losses(args: argparse.Namespace) -> None:
    from tools.toy_model.evaluate import loss_table  # noqa: PLC0415

    print(loss_table(args.models, args.data / "valid.jsonl", args.in_place))


def _replies(args: argparse.Namespace) -> None:
    from tools.toy_model.evaluate import replies  # noqa: PLC0415

    for row in replies(args.models, args.prompts, args.seed):
        print(json.dumps(row, ensure_ascii=False))


def _endings(args: argparse.Namespace) -> None:
    from tools.toy_model.evaluate import endings  # noqa: PLC0415

    started = time.perf_counter()
    report = endings(args.model, args.data / "valid.jsonl", args.prompts, args.tokens)
    print(json.dumps(report | {"seconds": round(time.perf_counter() - started, 1)}))


if __name__ == "__main__":
    raise SystemExit(main())
