"""Facts of this machine, read from the kernel: boot, CPUs, memory, name."""

import os
import socket
from pathlib import Path


def boot_id() -> str:
    """The kernel's id of this boot; another one means that everything that ran is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def cpus() -> frozenset[int]:
    """CPUs that this process may use."""
    return frozenset(os.sched_getaffinity(0))


def cpu_milli() -> int:
    """The same, counted in milli-CPU."""
    return len(cpus()) * 1000


def memory_mib() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def hostname() -> str:
    """The host's name, for people."""
    return socket.gethostname()
