"""What an agent does again and again for its own directory: the lease is where the guard looks, output and words are read, the journal is
flushed, and a full disk is said once when it begins and once when it is over.
"""

import asyncio
import time

import structlog

from fairlead_agent.journal import Journal
from fairlead_agent.lease import Lease
from fairlead_agent.lease_file import LeaseFile
from fairlead_agent.output import OutputShipper
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.saving import Saving
from fairlead_agent.settings import Settings

OUTPUT_POLL_S = 0.2
JOURNAL_FLUSH_S = 1.0

_log = structlog.get_logger()


class LeaseKept:
    """The file with the lease, written when that was renewed. `runtime`: its name, by which the guard knows where to look."""

    def __init__(self, settings: Settings, boot_id: str, incarnation: str, runtime: str) -> None:
        self._settings, self._boot_id, self._incarnation, self._runtime = settings, boot_id, incarnation, runtime
        self._file = LeaseFile(settings.directory)
        self._renewed = -1

    def renew(self, renewed_ns: int) -> None:
        """Put it where the guard and the next agent look."""
        if self._renewed != renewed_ns:
            self._renewed, settings = renewed_ns, self._settings
            self._file.write(Lease(
                self._boot_id, settings.node, self._incarnation, self._runtime, renewed_ns,
                settings.fence_ns, settings.fence_grace_ns, settings.fence_margin_ns,
            ))  # fmt: skip

    def close(self) -> None:
        """The file stays."""
        self._file.close()


class Upkeep:
    """Of the journal, and of what runs write."""

    def __init__(
        self, settings: Settings, journal: Journal, output: OutputShipper, saving: Saving, runtime: Runtime
    ) -> None:
        self._directory = str(settings.directory)
        self._journal, self._output, self._saving = journal, output, saving
        self._runtime = runtime
        self._told_full = False

    async def run(self) -> None:
        """For ever."""
        flushed = time.monotonic()
        while True:
            await asyncio.sleep(OUTPUT_POLL_S)
            await self._output.poll()
            self._saving.poll()
            if time.monotonic() - flushed >= JOURNAL_FLUSH_S:
                self._journal.flush()
                self._mind_the_disk()
                await self._runtime.look_at_directories()
                flushed = time.monotonic()

    def _mind_the_disk(self) -> None:
        """Nothing is started while the journal's reserve is not there (`Hearing.may_start`)."""
        reserve = self._journal.reserve
        if reserve.short and reserve.take():
            _log.warning("the disk has room again", directory=self._directory)
        elif reserve.short and not self._told_full:
            _log.critical("the disk is full; nothing is started", directory=self._directory)
        self._told_full = reserve.short
