"""Our engine and llama.cpp on one machine, in turns: steps, first tokens and resident memory, as a table.

    python -m tools.beside_llama --into FOLDER

Needs Linux on x86-64, g++, git, npm and the package `gguf`; llama.cpp is fetched into the folder (50 MB) and the
models are made there (4 GB; 18 GB of a mixture of experts, which `--shapes` asks for). The machine has to be quiet:
llama.cpp suffers from company, and so do ratios.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch

from pagedchat.bench.random_checkpoint import write_checkpoint
from tests.models.gguf.write_gguf import ARCHITECTURES, write_gguf
from tools.beside_llama.llama import Llama
from tools.beside_llama.shapes import OTHERS, SHAPES, STD

_FORMS = {"int8": "Q8_0", "int4": "Q4_0", "bf16": "BF16"}
"""Of our weights, and of llama.cpp's that are as large."""
_WORK = {"1 chat, ms a step": "1 32 64", "8 chats": "8 32 32", "first token of 512, ms": "1 512 1"}


@dataclass
class Side:
    """A process that answers.

    Raises:
        SystemExit: it did not begin.
    """

    process: "subprocess.Popen[str]"
    figures: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def start(cls, command: list[str], environment: dict[str, str]) -> "Side":
        """And wait until it is ready."""
        process = subprocess.Popen(  # noqa: S603 - ours, or made from our own source
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        side = cls(process)
        if side._line() != "ready":
            raise SystemExit(f"{command[0]} did not begin")
        return side

    def work(self, name: str, *, counts: bool) -> None:
        """Do a piece of work, and keep its time if it counts."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        self.process.stdin.write(_WORK[name] + "\n")
        self.process.stdin.flush()
        first, step = map(float, self._line().split())
        if counts:
            self.figures.setdefault(name, []).append(first if name.startswith("first") else step)

    def end(self) -> float:
        """Of the process: resident memory in MB, as the kernel has it at the end."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        self.process.communicate()
        return int(resident.split()[1]) / 1024

    def _line(self) -> str:
        assert self.process.stdout is not None  # noqa: S101 - it is a pipe
        return self.process.stdout.readline().strip()


def main() -> None:
    """Fetch, make, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.beside_llama", description=__doc__.split("\n")[0])
    parser.add_argument("--into", type=Path, required=True, help="a folder for llama.cpp and the models")
    parser.add_argument("--rounds", type=int, default=5, help="in turns; medians are printed (5)")
    parser.add_argument("--threads", type=int, default=2, help="of either side (2)")
    parser.add_argument("--only", default=",".join(_FORMS), help="forms of the weights (int8,int4,bf16)")
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"of {', '.join([*SHAPES, *OTHERS])}")
    args = parser.parse_args()
    if unknown := set(args.shapes.split(",")) - {*SHAPES, *OTHERS}:
        parser.error(f"there is no shape {', '.join(sorted(unknown))}")
    llama = Llama(args.into / "llama", args.threads)
    print("| shape, weights | " + " | ".join(_WORK) + " | resident, MB | ratios |")
    print("| --- |" + " ---: |" * (len(_WORK) + 2))
    for shape in args.shapes.split(","):
        folder, file = _models(args.into, shape)
        for form in args.only.split(","):
            other = file if form == "bf16" else llama.quantize(file, _FORMS[form])
            theirs = llama.command(other), llama.environment
            print(_row(f"{shape}, {form}", _ours(folder, form, args.threads), theirs, args.rounds), flush=True)


def _models(into: Path, shape: str) -> tuple[Path, Path]:
    """The checkpoint and the file of a shape."""
    folder, file, config = into / shape, into / f"{shape}.gguf", (SHAPES | OTHERS)[shape]
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(folder, config, torch.bfloat16, torch.device("cpu"), std=STD)
        architecture, part = ARCHITECTURES[config["model_type"]], file.with_suffix(".part")
        vocabulary = {"tokenizer.ggml.model": "no_vocab", f"{architecture}.vocab_size": config["vocab_size"]}
        write_gguf(part, folder, "BF16", vocabulary)
        part.rename(file)
    return folder, file


def _ours(folder: Path, form: str, threads: int) -> tuple[list[str], dict[str, str]]:
    dtype, quantization = ("bfloat16", "none") if form == "bf16" else ("auto", form)
    command = [sys.executable, "-m", "tools.beside_llama.ours", str(folder), dtype, quantization]
    return command, os.environ | {"OMP_NUM_THREADS": str(threads)}


def _row(
    name: str, ours: tuple[list[str], dict[str, str]], theirs: tuple[list[str], dict[str, str]], rounds: int
) -> str:
    """Both in turns, after one round that does not count; who is first changes."""
    sides = Side.start(*ours), Side.start(*theirs)
    for number in range(rounds + 1):
        for work in _WORK:
            for side in sides if number % 2 else sides[::-1]:
                side.work(work, counts=number > 0)
    medians = [[median(side.figures[work]) for work in _WORK] for side in sides]
    resident = [side.end() for side in sides]
    cells = [f"{mine:.1f}, {other:.1f}" for mine, other in zip(*medians, strict=True)]
    ratios = ", ".join(f"{mine / other:.2f}" for mine, other in zip(*medians, strict=True))
    return f"| {name} | {' | '.join(cells)} | {resident[0]:.0f}, {resident[1]:.0f} | {ratios} |"


if __name__ == "__main__":
    main()
