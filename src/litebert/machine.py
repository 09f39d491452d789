"""The CPUs and cores this process may use. No torch here."""

from __future__ import annotations

import contextlib
import math
import os
import platform
from pathlib import Path

CPU_FOLDER = Path("/sys/devices/system/cpu")


def usable_cpus() -> int:
    """How many CPUs this process may use, by its affinity and, in a container, its quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max": no quota
        pass
    return count


def usable_cores() -> int:
    """How many physical cores this process may use; two CPUs of a core share its multipliers, so one keeps it busy."""
    count = usable_cpus()
    if not hasattr(os, "sched_getaffinity"):
        return count
    try:
        files = [CPU_FOLDER / f"cpu{number}/topology/thread_siblings_list" for number in os.sched_getaffinity(0)]
        return min(count, len({file.read_text() for file in files}))
    except OSError:  # the system does not expose it
        return count


def cpu_name() -> str:
    """The name of the processor, if the system reports one."""
    return _cpu_fact("model name") or platform.processor() or platform.machine()


BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86's two, and Arm's


def announces_bf16() -> bool:
    """Whether Linux says that the processor multiplies in bf16. Some that say so crash: train.device tries it first."""
    return bool(BF16_FLAGS & set(_cpu_fact("flags", "Features").split()))


def _cpu_fact(*names: str) -> str:
    """What Linux says of the first processor under one of these names, or ""."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in names:
                return value.strip()
    return ""


def share_cores() -> None:
    """Make OpenMP's threads sleep soon when they wait for each other; call this before torch starts OpenMP.

    By default they spin for milliseconds. If another program occupies the core of one of them, the others waste theirs
    until it returns: two threads on two busy cores are several times slower than one (benchmarks/busy_machine.py).
    A thousand rounds take about ten microseconds, the gap between two torch operations. The user's settings win.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
        os.environ |= {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}  # GNU's, and LLVM's and Intel's (milliseconds)
