"""Facts of this machine, read from the kernel: boot, CPUs, memory, name."""

import os
import resource
import socket
from pathlib import Path

#: More than that no program of ours knows what to do with.
OPEN_FILES_MAX = 1024 * 1024


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


def open_files_max() -> int:
    """Most open files that a process of this machine may have: ours, which an engine's is rarely below."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)


def hostname() -> str:
    """The host's name, for people."""
    return socket.gethostname()


def program(pid: int) -> str:
    """What the kernel calls the process, 15 characters at most; "" of one that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
