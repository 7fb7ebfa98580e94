"""CPU, memory, disk, network and terminals of running programs, read from the kernel. Asks no engine: a container's numbers are those of
its control groups, a process's those of its family. What cannot be read is not known.
"""

# ruff: noqa: PTH115, PTH208 -- small files of /proc and /sys, many of them: plain system calls on strings

import contextlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux import counters
from fairlead_schemas.wire.samples import RunResources

MIB, NS_PER_MS, US_PER_MS = 2**20, 1_000_000, 1000
CGROUPS = "/sys/fs/cgroup"
#: At a time; nearly every file is shorter.
READ_BYTES = 16 * 1024
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Metering:
    """Resource readings of runs. It keeps each run's total CPU time, so that the value never falls when a child ends without a
    wait.
    """

    def __init__(self) -> None:
        self._cpu_ms: dict[RunKey, int] = {}

    def read(self, programs: Mapping[RunKey, int], *, contained: bool) -> list[RunResources]:
        """Return the resources of these programs, {run: pid of its first process}. A program that is gone meanwhile is left out."""
        found: list[RunResources] = []
        families = counters.Families(() if contained or not programs else _processes())
        for key, pid in programs.items():
            family = families.of(pid)
            usage = _of_groups(pid) if contained else _of_family(family)
            if usage:
                terminals = _terminals_inside(pid) if contained else _terminals_of(family)
                usage |= _last_typed(terminals)
                usage["cpu_ms"] = max(usage.get("cpu_ms", 0), self._cpu_ms.get(key, 0))
                found.append(RunResources(run=_name(key), rank=key.rank, **usage, **_network(pid)))
        cpu_ms = {(each.run, each.rank): each.cpu_ms for each in found}
        self._cpu_ms = {key: cpu_ms.get((_name(key), key.rank), self._cpu_ms.get(key, 0)) for key in programs}
        return found


def _name(key: RunKey) -> str:
    return f"{key.job}.{key.attempt}"


def _text(path: str) -> str:
    """ "" for a file that is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return b"".join(iter(lambda: os.read(fd, READ_BYTES), b"")).decode(errors="replace")
    except OSError:  # its process has gone
        return ""
    finally:
        os.close(fd)


def _processes() -> list[counters.Process]:
    texts = (_text(f"/proc/{name}/stat") for name in os.listdir("/proc") if name.isdecimal())
    return [each for text in texts if text and (each := counters.process(text)) is not None]


def _of_family(family: list[counters.Process]) -> dict[str, int]:
    if not family:
        return {}
    usage = {
        "cpu_ms": sum(each.ticks for each in family) * _TICK_MS,
        "memory_mib": sum(each.pages for each in family) * _PAGE // MIB,
    }
    disk = [counters.keyed(_text(f"/proc/{each.pid}/io")) for each in family]
    if all(disk):
        usage["disk_read_bytes"] = sum(each["read_bytes"] for each in disk)
        usage["disk_written_bytes"] = sum(each["write_bytes"] for each in disk)
    return usage


def _of_groups(pid: int) -> dict[str, int]:
    groups = counters.groups(_text(f"/proc/{pid}/cgroup"))
    if "memory" not in groups:
        return _of_version_2(f"{CGROUPS}{groups['']}") if "" in groups else {}
    return _of_version_1(lambda controller, name: _text(f"{CGROUPS}/{controller}{groups.get(controller, '')}/{name}"))


def _of_version_1(read: Callable[[str, str], str]) -> dict[str, int]:
    cpu, used = read("cpuacct", "cpuacct.usage").strip(), read("memory", "memory.usage_in_bytes").strip()
    if not cpu.isdecimal() or not used.isdecimal():
        return {}
    cache = counters.keyed(read("memory", "memory.stat")).get("total_inactive_file", 0)
    usage = {"cpu_ms": int(cpu) // NS_PER_MS, "memory_mib": max(0, int(used) - cache) // MIB}
    if disk := read("blkio", "blkio.throttle.io_service_bytes"):
        usage["disk_read_bytes"], usage["disk_written_bytes"] = counters.blkio(disk)
    return usage


def _of_version_2(group: str) -> dict[str, int]:
    cpu, used = counters.keyed(_text(f"{group}/cpu.stat")), _text(f"{group}/memory.current").strip()
    if "usage_usec" not in cpu or not used.isdecimal():
        return {}
    cache = counters.keyed(_text(f"{group}/memory.stat")).get("inactive_file", 0)
    usage = {"cpu_ms": cpu["usage_usec"] // US_PER_MS, "memory_mib": max(0, int(used) - cache) // MIB}
    if Path(f"{group}/io.stat").exists():
        usage["disk_read_bytes"], usage["disk_written_bytes"] = counters.io_stat(_text(f"{group}/io.stat"))
    return usage


def _terminals_inside(pid: int) -> list[str]:
    """Return the paths of all pseudo terminals of a container: its own, and those of users who entered it (`exec`)."""
    folder = f"/proc/{pid}/root/dev/pts"
    with contextlib.suppress(OSError):
        return [f"{folder}/{name}" for name in os.listdir(folder) if name.isdecimal()]
    return []


def _terminals_of(family: list[counters.Process]) -> list[str]:
    """Paths of the terminals that the family's processes are controlled by, each as the process itself sees it."""
    named = {counters.terminal_name(each.terminal): each.pid for each in family}
    return [f"/proc/{each}/root/dev/{name}" for name, each in named.items() if name]


def _last_typed(terminals: list[str]) -> dict[str, int]:
    """Return {"terminal_ns": time of the last input} over these terminals; empty without one.

    The measure is that of `w`: the kernel sets a terminal's access time when input is read, in steps of 8 s. A program
    can set it to any moment; the future counts as now.
    """
    times: list[int] = []
    for path in terminals:
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) in counters.PTS_MAJORS:
                times.append(min(found.st_atime_ns, time.time_ns()))
    return {"terminal_ns": max(times)} if times else {}


def _network(pid: int) -> dict[str, int]:
    """Return the network counters of a process with a network of its own; empty otherwise, because the machine's traffic
    belongs to no single run.
    """
    try:
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return {}
    except OSError:
        return {}
    received, sent = counters.net_dev(_text(f"/proc/{pid}/net/dev"))
    return {"network_rx_bytes": received, "network_tx_bytes": sent}
