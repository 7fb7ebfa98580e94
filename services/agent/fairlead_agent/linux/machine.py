"""Facts of this machine, read from the kernel: boot, CPUs, memory, name; and network interface that carries this node's
address, as the kernel reports it.
"""

import array
import fcntl
import os
import resource
import socket
import struct
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
    """Return the kernel's name of the process, 15 characters at most; "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


_SIOCGIFCONF = 0x8912
#: struct ifreq on 64-bit Linux: a name of 16 bytes, and an address whose IPv4 begins at its fourth.
_NAME_BYTES, _ENTRY_BYTES = 16, 40
_ENTRIES_MAX = 1024


def interface_of(address: str) -> str:
    """The interface's name; "" where the address is no IPv4 address (or name of one) of this network namespace."""
    try:
        wanted = socket.gethostbyname(address)
    except OSError:
        return ""
    return next((name for name, found in _addresses() if found == wanted), "")


def _addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address), aliases under the name of their interface."""
    entries = array.array("B", bytes(_ENTRY_BYTES * _ENTRIES_MAX))
    where, size = entries.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        filled = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iL", size, where))
    used: int = struct.unpack("iL", filled)[0]
    data = entries.tobytes()[:used]
    found: list[tuple[str, str]] = []
    for at in range(0, used, _ENTRY_BYTES):
        name = data[at : at + _NAME_BYTES].partition(b"\0")[0].decode()
        found.append((name.partition(":")[0], socket.inet_ntoa(data[at + _NAME_BYTES + 4 : at + _NAME_BYTES + 8])))
    return found
