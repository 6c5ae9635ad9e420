"""How a rank finds the others and loads its part of a model: the same on all. Loads torch when it is called."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pagedchat.config import EngineConfig, SpeculationConfig
from pagedchat.distributed.messages import Join
from pagedchat.engine.output import ModelRunner
from pagedchat.errors import DeviceError
from pagedchat.runtime.loading.build import load_model

if TYPE_CHECKING:
    from pagedchat.distributed.group import RankGroup

SHARE_GPU = "PAGEDCHAT_RANKS_SHARE_A_GPU"
"""Environment: all ranks go to the first GPU, to try them out where there is but one."""


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """What a rank runs batches on."""

    runner: ModelRunner
    device: str
    """For people."""
    memory: int
    """Bytes of its blocks."""
    prepare_more: Callable[[], bool]
    """See `LoadedModel.prepare_more`. All ranks call it at the same time."""


def load_part(join: Join, arrived: Callable[[], None]) -> LoadedPart:
    """Load a part on any rank but the first.

    Args:
        join: what rank 0 has said.
        arrived: called when this rank is about to connect with the others.

    Raises:
        PagedChatError: as `load_model`.
    """
    config = join.config
    model = replace(config.model, skip_tokenizer_init=True, tokenizer=None)
    config = replace(config, model=model, speculation=SpeculationConfig())  # rank 0 reads texts, and has drafts
    from pagedchat.runtime.step.model_runner import TorchModelRunner  # noqa: PLC0415 - seconds

    joined = list["RankGroup"]()

    def join_others() -> "RankGroup":
        check_devices(config, join.size)
        arrived()
        joined.append(join_group(config, join.rank, join.size, join.folder))
        return joined[0]

    loaded = load_model(config, streams=join.streams, join_ranks=join_others)
    if isinstance(loaded.runner, TorchModelRunner):
        loaded.runner.samples = False
    device = describe(joined[0], loaded.info.device)
    memory = loaded.info.num_blocks * loaded.info.block_bytes
    return LoadedPart(loaded.runner, device, memory, loaded.prepare_more)


def shares_gpu() -> bool:
    """Whether all ranks go to the first GPU."""
    return os.environ.get(SHARE_GPU) == "1"


def check_devices(config: EngineConfig, size: int) -> None:
    """Refuse more ranks than there are GPUs for.

    Raises:
        DeviceError: that.
    """
    import torch  # noqa: PLC0415 - seconds

    if config.model.device == "cpu":
        return
    num_gpus = torch.cuda.device_count()
    if num_gpus < (1 if shares_gpu() else size):
        there = {0: "no GPU that torch can use", 1: "one GPU"}.get(num_gpus, f"{num_gpus} GPUs")
        raise DeviceError(
            f"tensor_parallel_size is {size}, but there {'are' if num_gpus > 1 else 'is'} {there}.",
            "Choose a smaller --tensor-parallel-size; with --device cpu the ranks are processes on the CPU.",
        )


def join_group(config: EngineConfig, rank: int, size: int, folder: str) -> "RankGroup":
    """Find the others; `check_devices` has nothing against them.

    Args:
        config: says which devices are meant.
        rank, size: which one of how many.
        folder: of nobody else's.

    Raises:
        DeviceError, RuntimeError: see `RankGroup`.
    """
    import torch  # noqa: PLC0415 - seconds

    from pagedchat.distributed.group import RankGroup  # noqa: PLC0415

    if config.model.device == "cpu":
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
        return RankGroup(rank, size, folder, torch.device("cpu"))
    shares = shares_gpu()
    device = torch.device("cuda", 0 if shares else rank)
    torch.cuda.set_device(device)
    in_order = config.model.batch_invariant
    return RankGroup(rank, size, folder, device, shares_device=shares, in_order=in_order)


def describe(group: "RankGroup", device: str) -> str:
    """A rank's device, for people."""
    return device if group.device.type == "cpu" else f"GPU {group.device.index}: {device}"
