"""Counters of a run's CPU, memory, disk and network, from the kernel's files. Pure: takes their text, returns numbers.

The texts are those of /proc/<pid>/stat, /proc/<pid>/io and /proc/<pid>/net/dev, and of both versions of control groups.
A value missing in a text is None.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Process(NamedTuple):
    """Process read from one line of /proc/<pid>/stat. `ticks`: its CPU time, with that of children that have ended and were
    waited for.
    """

    pid: int
    parent: int
    session: int
    ticks: int
    pages: int
    #: The kernel's number of its controlling terminal; 0: it has none.
    terminal: int = 0


def process(stat: str) -> Process | None:
    """None for a text that is none. The name in brackets may hold anything."""
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    pid = head.partition(" ")[0]
    if len(fields) < 22 or not pid.isdecimal():
        return None
    ticks, pages = sum(map(int, fields[11:15])), max(0, int(fields[21]))
    return Process(int(pid), int(fields[1]), int(fields[3]), ticks, pages, int(fields[4]))


class Families:
    """Processes of a machine by parent and by session, sorted once for all runs."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._known = {each.pid: each for each in processes}
        self._children: dict[int, list[int]] = {}
        self._sessions: dict[int, list[int]] = {}
        for each in self._known.values():
            self._children.setdefault(each.parent, []).append(each.pid)
            self._sessions.setdefault(each.session, []).append(each.pid)

    def of(self, root: int) -> list[Process]:
        """Return the process, all below it, and all of its session, by rising pid; empty if there is none."""
        found = {*self._sessions.get(root, ()), *({root} & self._known.keys())}
        todo = list(found)
        while todo:
            new = [pid for pid in self._children.get(todo.pop(), ()) if pid not in found]
            found.update(new)
            todo += new
        return [self._known[pid] for pid in sorted(found)]


#: Majors of pseudo terminals, and the bits of a device number as /proc writes it: minor 31-20 and 7-0, major 19-8.
PTS_MAJORS = range(136, 144)


def terminal_name(number: int) -> str:
    """ "pts/3" for the kernel's number of a pseudo terminal; "" for 0 and for others (a job has no console)."""
    major, minor = (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return f"pts/{(major - PTS_MAJORS.start) * 256 + minor}" if major in PTS_MAJORS else ""


def groups(cgroup: str) -> dict[str, str]:
    """{controller: path} of /proc/<pid>/cgroup; version 2 has one path, under ""."""
    found: dict[str, str] = {}
    for line in cgroup.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found |= dict.fromkeys(parts[1].split(","), parts[2])
    return found


def keyed(text: str) -> dict[str, int]:
    """{word: number} of lines such as "inactive_file 4096" or "rchar: 7"."""
    pairs = (line.replace(":", " ").split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def blkio(text: str) -> tuple[int, int]:
    """Bytes read and written, of version 1's lines "8:0 Read 4096" over all devices."""
    rows = [line.split() for line in text.splitlines()]
    entries = [(row[1], int(row[2])) for row in rows if len(row) == 3 and row[2].isdecimal()]
    return sum(n for word, n in entries if word == "Read"), sum(n for word, n in entries if word == "Write")


def io_stat(text: str) -> tuple[int, int]:
    """The same of version 2's lines "8:0 rbytes=4096 wbytes=0 ..."."""
    words = [word.partition("=") for line in text.splitlines() for word in line.split()[1:]]
    sums: Mapping[str, int] = {
        name: sum(int(value) for word, _, value in words if word == name and value.isdecimal())
        for name in ("rbytes", "wbytes")
    }
    return sums["rbytes"], sums["wbytes"]


def net_dev(text: str) -> tuple[int, int]:
    """Bytes received and sent over all interfaces but the loopback."""
    received = sent = 0
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and name.strip() != "lo" and len(fields) >= 9:
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent
