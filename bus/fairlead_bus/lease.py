"""Leader's lease: prevents two replicas from leading at once. The fence is the log's server, never the lease.

A holder is one process, named by a random word; its name, its host and its process id are beside it for people. Another
process waits until the lease has run out, one of the same name too. Only where the holder is certain to be dead, because its
process id counts here and no such process lives, the lease is taken over at once: a process that restarts need not wait
for its predecessor.

A lease that ran out while the bus was away deposes nobody: who waits gives the holder time to renew it.
"""

import asyncio
import os
import secrets
import socket
from functools import cache
from pathlib import Path

import msgspec

from fairlead_bus.port import Bus, OutcomeUnknown, StaleWriter, Unavailable
from fairlead_schemas.wire import subjects

TTL_S = 3
RENEW_S = 1.0
POLL_S = 0.25
#: A renewal is given up after this long and tried again after a moment, so that one lost message does not cost the lease.
ANSWER_S = 0.75
AGAIN_S = 0.1


@cache
def process_word() -> str:
    """The random word of this process."""
    return secrets.token_hex(8)


@cache
def pid_space() -> str:
    """Where this process's id is unique: the boot of the machine and the namespace (of a container); "" where that is not
    known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


class LeaseHolder(msgspec.Struct, frozen=True):
    """The process that has the lease, as it is stored. An earlier version stored no word and no space."""

    name: str
    host: str = ""
    pid: int = 0
    word: str = ""
    space: str = ""

    @classmethod
    def here(cls, name: str) -> "LeaseHolder":
        """A holder within this process."""
        return cls(name, socket.gethostname(), os.getpid(), process_word(), pid_space())

    def succeeds(self, other: "LeaseHolder") -> bool:
        """True where the other one is this holder itself, or a process that is certain to be dead."""
        if self.word == other.word:
            return self.name == other.name
        if not other.space or self.space != other.space:
            return False
        return self.pid == other.pid or not _lives(other.pid)


def decode_holder(value: bytes) -> LeaseHolder | None:
    """Return the holder that a lease names; None for bytes that are no lease."""
    try:
        return msgspec.json.decode(value, type=LeaseHolder)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _lives(pid: int) -> bool:
    """True while a process lives; one that has ended and is not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return not state or state[0] not in "ZX"


class LeaderLease:
    """Lease of one service."""

    def __init__(self, bus: Bus, service: str, holder: str) -> None:
        self.bus, self.service, self.holder = bus, service, LeaseHolder.here(holder)
        self.revision = 0
        #: This holder took it, and has not given it back. It may have run out since.
        self.is_held = False
        self._away = False
        #: The loop's time before which an absent lease is not taken.
        self._not_before = 0.0

    async def try_acquire(self) -> bool:
        """True when the lease is ours; else ask again after POLL_S.

        A lease that ran out while the bus was away says nothing about its holder, who could not renew it: after such a
        time another process waits for as long as a lease lasts.
        """
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
        except Unavailable:
            self._away = True
            return False
        now = asyncio.get_running_loop().time()
        if self._away:
            self._away, self._not_before = False, now + TTL_S
        if entry is None and now < self._not_before and not self.is_held:
            return False
        if entry is not None and not self._may_take(entry.value):
            return False
        try:
            await self._put(entry.revision if entry else 0)
        except (StaleWriter, Unavailable, OutcomeUnknown):
            return False  # what is unknown shows at the next look: the holder decides
        self.is_held = True
        return True

    async def _put(self, expected: int) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                self.revision = await self.bus.put(
                    subjects.LEASE, self.service, msgspec.json.encode(self.holder), expected=expected, ttl_s=TTL_S
                )
        except TimeoutError:
            raise OutcomeUnknown(f"the lease of {self.service}: no answer within {ANSWER_S:g} s") from None

    def _may_take(self, value: bytes) -> bool:
        """True for an own lease, and for that of a predecessor."""
        holder = decode_holder(value)
        return holder is not None and self.holder.succeeds(holder)

    async def keep(self) -> None:
        """Renew the lease without end. Returns when another holder has the lease: the caller then steps down."""
        pause_s = RENEW_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._put(self.revision)
                pause_s = RENEW_S
            except StaleWriter:
                if not await self.try_acquire() and await self._taken():
                    return
                pause_s = AGAIN_S if self._away else RENEW_S
            except (Unavailable, OutcomeUnknown):
                pause_s = (
                    AGAIN_S  # a renewal that was stored after all makes the next one stale, and that one looks again
                )

    async def _taken(self) -> bool:
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
        except Unavailable:
            return False
        return entry is not None and not self._may_take(entry.value)

    async def release(self) -> None:
        """Give it back, so that a successor need not wait."""
        self.is_held = False
        try:
            entry = await self.bus.get(subjects.LEASE, self.service)
            if entry is not None and self._may_take(entry.value):
                await self.bus.delete(subjects.LEASE, self.service)
        except (Unavailable, OutcomeUnknown):
            pass
