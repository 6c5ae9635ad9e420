"""How many threads compute: the physical cores that this process may use, as the system allows them. Two threads on
one core share what they wait for.
"""

import os
import sys
from pathlib import Path

import psutil

_QUOTA, _OLD_QUOTA, _OLD_PERIOD = "cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


def num_compute_threads() -> int:
    """`OMP_NUM_THREADS` if the user has set it; else the cores allowed, by affinity and by quota; at least 1."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return max(1, min(_physical_cores(), _quota()))


def _physical_cores(system: Path = Path("/sys/devices/system/cpu")) -> int:
    if sys.platform != "linux":
        return psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        try:
            siblings = (system / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(cpu)
        cores.add(siblings)
    return len(cores)


def _quota(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole cores that the control group grants; many where it does not say."""
    try:
        quota, period = (groups / _QUOTA).read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((groups / name).read_text().strip() for name in (_OLD_QUOTA, _OLD_PERIOD))
        except OSError:
            return sys.maxsize
    if not (quota.isdigit() and period.isdigit() and int(period)):  # "max", or -1
        return sys.maxsize
    return max(1, int(quota) // int(period))
