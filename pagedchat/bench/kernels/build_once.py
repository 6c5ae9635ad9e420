"""Builds the kernels of one model and says how long it took: the program that `cold_compile` runs in a new process.

Loads no torch, so that the time is that of the compiler, or of the disk cache.
"""

import argparse
import json
import time

from pagedchat.jit.builder import compile_all
from pagedchat.ops.catalogue import variants_for_model


def main() -> None:
    """Print one JSON object: seconds, kernels, how many of them came from the cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture")
    parser.add_argument("head_size", type=int)
    parser.add_argument("group_size", type=int)
    parser.add_argument("block_size", type=int)
    args = parser.parse_args()
    started = time.perf_counter()
    variants = variants_for_model(
        element="float16",
        head_size=args.head_size,
        block_size=args.block_size,
        group_size=args.group_size,
        soft_cap=False,
        architecture=args.architecture,
    )
    builds = compile_all(variants, args.architecture)
    seconds = time.perf_counter() - started
    print(
        json.dumps(
            {"seconds": seconds, "kernels": len(builds), "from_cache": sum(build.cached for build in builds)}
        )
    )


if __name__ == "__main__":
    main()
