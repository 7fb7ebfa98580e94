"""The disk under the local nats-server: a reserve that is given up when it is full, and the restart afterwards.

nats-server's file store keeps its write error until the server is restarted, however much room there is again
(docs/reference/facts.md). `Judge` decides what to do from what is seen (pure); `ServerDisk` looks, on a thread of its own.
"""

import contextlib
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead_bus.disk_reserve import Reserve
from fairlead_bus.environment_settings import whole

MIB = 2**20
RESERVE_MIB, RESERVE_MIB_MOST = 16, 2**20
#: Below so much the disk is full: the server needs a piece for each block and each index that it writes.
FULL_BYTES = MIB
LOOK_S, LOOK_SOON_S = 5.0, 1.0
MONITOR_S = 2.0
#: Commands that are not stored for so long, on a disk with room, are the server's fault also where it does not report a
#: write error.
UNSTORED_S = 60.0
#: The pause between two restarts doubles, up to the longest.
AGAIN_FIRST_S, AGAIN_LAST_S = 10.0, 300.0


def reserve_bytes(env: Mapping[str, str]) -> int:
    """FAIRLEAD_SERVER_RESERVE_MIB in bytes; 0: none. Raises BadSetting."""
    mib = whole(env, "FAIRLEAD_SERVER_RESERVE_MIB", RESERVE_MIB, unit="MiB", least=0, most=RESERVE_MIB_MOST)
    return mib * MIB


class DiskReading(NamedTuple):
    """Observations at one time."""

    #: Free bytes on the disk of the server's store.
    free: int
    #: The write error that the server reports of a stream; "" for none.
    write_error: str
    #: True while commands are not stored, as the gateway sees it.
    unstored: bool


class DiskStep(Enum):
    """Next action for the server's disk."""

    NOTHING = "nothing"
    GIVE_RESERVE = "give up the reserve"
    RESTART = "restart the server"


class DiskPolicy:
    """Decides, look by look. `room` is the free bytes from which the disk counts as having room again."""

    def __init__(self, room: int) -> None:
        self._room = max(room, 2 * FULL_BYTES)
        self._unstored_since: float | None = None
        self._pause_s = AGAIN_FIRST_S
        self._restarted: float | None = None

    def step(self, look: DiskReading, now: float) -> DiskStep:
        """The step to take upon this look."""
        if not look.unstored:
            self._unstored_since = None
        elif self._unstored_since is None:
            self._unstored_since = now
        if look.free < FULL_BYTES:
            return DiskStep.GIVE_RESERVE
        if look.free < self._room or not self._is_refusing(look, now):
            return DiskStep.NOTHING
        if self._restarted is not None:
            if now - self._restarted < self._pause_s:
                return DiskStep.NOTHING
            self._pause_s = min(self._pause_s * 2, AGAIN_LAST_S)
        self._restarted, self._unstored_since = now, None
        return DiskStep.RESTART

    def _is_refusing(self, look: DiskReading, now: float) -> bool:
        lasting = self._unstored_since is not None and now - self._unstored_since >= UNSTORED_S
        return bool(look.write_error) or lasting


class _Fault(msgspec.Struct):
    error: str = ""


class _Health(msgspec.Struct):
    errors: list[_Fault] = []


def write_error(monitor: str) -> str:
    """The first write error of a stream by the server's own health page; "" while there is none, or no answer."""
    try:
        with urllib.request.urlopen(f"{monitor}/healthz?details=true", timeout=MONITOR_S):  # noqa: S310 -- our own server
            return ""
    except urllib.error.HTTPError as error:
        with contextlib.suppress(msgspec.MsgspecError):
            health = msgspec.json.decode(error.read(), type=_Health)
            return next((fault.error for fault in health.errors if "write error" in fault.error), "")
        return ""
    except OSError:
        return ""  # it does not run now; the supervisor sees to that


class ServerDisk:
    """Looks after the disk of the server whose store is in `folder`, from `watch` until `stop`."""

    def __init__(
        self,
        folder: Path,
        monitor: str,
        *,
        reserve: int,
        unstored: Callable[[], bool],
        restart: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """`unstored` is `Look.unstored`; `restart` ends the server, which is then started again; `say` tells people."""
        self._folder, self._monitor = folder, monitor
        self._reserve = Reserve(folder, reserve)
        self._unstored, self._restart, self._say = unstored, restart, say
        self._judge = DiskPolicy(2 * reserve)
        self._is_full = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin, on a thread of its own."""
        self._thread = threading.Thread(target=self._watch, name="server-disk", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End. The server stops next, and a full disk may keep it from that: the reserve is given up then."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._free() < FULL_BYTES:
            self._reserve.give()

    def _watch(self) -> None:
        pause_s = LOOK_SOON_S
        while not self._stopping.wait(pause_s):
            well = True
            # A disk that cannot be looked at is looked at again.
            with contextlib.suppress(OSError):
                well = self._once()
            pause_s = LOOK_S if well else LOOK_SOON_S

    def _once(self) -> bool:
        """Observe once and act on the result. Returns False while there is a fault."""
        look = DiskReading(self._free(), write_error(self._monitor), self._unstored())
        step = self._judge.step(look, time.monotonic())
        if step is DiskStep.GIVE_RESERVE:
            self._reserve.give()
            if not self._is_full:
                self._is_full = True
                self._say(f"the disk of {self._folder} is full: make room; no job is accepted until then")
        elif self._reserve.take() and self._is_full:
            self._is_full = False
            self._say(f"the disk of {self._folder} has room again")
        if step is DiskStep.RESTART:
            why = look.write_error or "commands are not stored"
            self._say(f"nats-server refuses although its disk has room ({why}): it is restarted")
            self._restart()
        return not (self._is_full or look.write_error or look.unstored)

    def _free(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize
