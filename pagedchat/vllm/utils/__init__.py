"""`vllm.utils`, where older scripts find the parser."""

from pagedchat.vllm.utils.argparse_utils import FlexibleArgumentParser

__all__ = ["FlexibleArgumentParser"]
