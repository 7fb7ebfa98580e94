"""XIDs in the kernel's log. `xid_in` reads one line and knows no files; `KernelLog` is the shell that reads /dev/kmsg.

A line of /dev/kmsg is "priority,sequence,microseconds,flags;text". The driver writes, by version,

    NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
    NVRM: Xid (0000:03:00): 14, Channel 00000001
    NVRM: Xid (PCI:0000:05:00 GPU-I:02): 31, pid=..., Ch 00000008, MMU Fault: ...

(forms as in NVIDIA's XID guide and in gpud's and node-problem-detector's public tests). Anybody who may write to /dev/kmsg is root.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

#: So much of a line is repeated as evidence.
EVIDENCE_CHARS_MAX = 300
#: Lines read in one look; the rest comes with the next.
LINES_MAX = 2000
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
    r"(?: GPU-I:(?P<instance>\d+))?(?: GPU-CI:\d+)?\): (?P<code>\d{1,4})\b(?P<rest>.*)"
)
_PID = re.compile(r"\bpid='?(\d+)'?")


class XidLine(NamedTuple):
    """XID read from one line of the kernel's log."""

    #: PCI address without function, lower case, domain of four digits: "0000:3b:00".
    pci: str
    code: int
    #: The process that the driver names; 0: none.
    pid: int
    evidence: str


def xid_in(text: str) -> XidLine | None:
    """The XID that a line of the kernel's log reports, if it does; control characters of others are made harmless."""
    found = _XID.search(text)
    if found is None:
        return None
    pid = _PID.search(found["rest"])
    evidence = "".join(each if each.isprintable() else " " for each in text[found.start() :])
    return XidLine(
        pci_address(found["pci"]), int(found["code"]), int(pid[1]) if pid else 0, evidence[:EVIDENCE_CHARS_MAX]
    )


def pci_address(text: str) -> str:
    """ "00000000:3B:00.0" is "0000:3b:00"."""
    domain, bus, device = text.lower().partition(".")[0].split(":")
    return f"{domain[-4:].rjust(4, '0')}:{bus}:{device}"


class Record(NamedTuple):
    """Record of /dev/kmsg."""

    sequence: int
    text: str


def record_of(data: bytes) -> Record | None:
    """A record as it is read; None for what is none."""
    head, semicolon, text = data.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not fields[1].isdecimal():
        return None
    return Record(int(fields[1]), text.partition("\n")[0])


class KernelLog:
    """The log since a sequence number. Where it may not be read, it is empty and says why."""

    def __init__(self, after: int | None = None, path: Path = Path("/dev/kmsg")) -> None:
        """`after`: the newest record that was read in this boot, -1 for none of them; None: what comes from here on."""
        self.sequence = -1 if after is None else after
        self.unreadable = ""
        self._fd: int | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if after is None:
                os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.unreadable = f"{path}: {error.strerror}"

    def new(self) -> list[XidLine]:
        """XIDs since the last call, oldest first."""
        found: list[XidLine] = []
        for _ in range(LINES_MAX if self._fd is not None else 0):
            try:
                data = os.read(self._fd or 0, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel has overwritten what followed; the next read resumes after the gap
                continue
            except OSError as error:
                self.unreadable = str(error)
                break
            if not data:
                break
            record = record_of(data)
            if record is None or record.sequence <= self.sequence:
                continue
            self.sequence = record.sequence
            if (xid := xid_in(record.text)) is not None:
                found.append(xid)
        return found

    def close(self) -> None:
        """Read no more."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None


def gpus_by_address(root: Path = Path("/proc/driver/nvidia/gpus")) -> dict[str, str]:
    """{PCI address without function: UUID}, as the driver lists them under /proc; empty where there is no driver."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for place in sorted(root.iterdir()):
            with contextlib.suppress(OSError, ValueError):
                uuid = re.search(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)", (place / "information").read_text(), re.MULTILINE)
                if uuid is not None:
                    found[pci_address(place.name)] = uuid[1]
    return found
