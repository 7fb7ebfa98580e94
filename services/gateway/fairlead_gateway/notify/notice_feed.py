"""Notices of the log for all destinations: the newest ones in a bounded ring, older ones read from the log again.

A destination is a place in the log and nothing more, so what waits for a receiver that is away costs no memory. Start at
`NoticeFeed.after` and `NoticeFeed.past`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from fairlead_bus.log import Folded, LogReader
from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.access.targets import document_target, job_target, node_target, queue_target
from fairlead_gateway.notify.rules import Facts, Notice, notices_of, place_of, read_after
from fairlead_gateway.views.fold import Views
from fairlead_rights.access_list import Target
from fairlead_schemas.policies.notifications import EVENT_KINDS
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_envelope

#: Bytes of the notices in the ring.
RING_BYTES_MAX = 4 * 1024 * 1024
#: Readers of the past at once: each may have some MiB on the way.
READERS_MAX = 4
#: Commits that one reading of the past looks at, so that readers take turns.
COMMITS_MAX = 20_000
TELEMETRY_S = 5.0

#: Facts are None where the job has left the views already.
type Found = tuple[Notice, Facts | None]


class NoticeFeed:
    """Feed of one notifier. `take` everything that is folded into the views."""

    def __init__(self, bus: Bus, views: Views, ring_max: int) -> None:
        self._bus = bus
        self._views = views
        self._ring_max = ring_max
        self._ring: deque[Found] = deque()
        self._bytes = 0
        #: Place after which the ring has every notice.
        self.first = self.head
        self._readers = asyncio.Semaphore(READERS_MAX)

    @property
    def head(self) -> int:
        """Place of the newest commit that is folded."""
        return place_of(self._views.sequence)

    def take(self, batch: Sequence[Folded]) -> list[Found]:
        """Keep the notices of commits that were just folded, and return them."""
        found: list[Found] = []
        for folded in batch:
            if any(type(event).__name__ in EVENT_KINDS for event in folded.commit.events):
                notices = notices_of(folded.seq, decode_envelope(folded.payload))
                found += [(notice, self.facts(notice)) for notice in notices]
        self._ring.extend(found)
        self._bytes += sum(len(notice.event) for notice, _ in found)
        while len(self._ring) > self._ring_max or self._bytes > RING_BYTES_MAX:
            notice, _ = self._ring.popleft()
            self._bytes -= len(notice.event)
            self.first = notice.place
        return found

    def facts(self, notice: Notice) -> Facts | None:
        """Return what a notice is about, as of the views; None for a job that has left them."""
        views = self._views
        if notice.job:
            row = views.jobs.rows.get(notice.job) or views.jobs.rows.get(array_of(notice.job) or "")
            return None if row is None else Facts(job_target(views, row, notice.job), row.name)
        if notice.node:
            node = views.nodes.rows.get(notice.node)
            return Facts(Target() if node is None else node_target(node))
        return Facts(queue_target(views, notice.queue))

    async def retired_facts(self, job: str) -> Facts:
        """Return what is known of a job that has left the views, by telemetry. Raises Unavailable also where telemetry does not know the
        job, since the log has it: telemetry is behind then.
        """
        request = msgspec.json.encode({"id": job})
        answer = await self._bus.request(subjects.rpc("telemetry", "job"), request, timeout_s=TELEMETRY_S)
        document = msgspec.json.decode(answer or b"null")
        if not isinstance(document, dict) or "id" not in document:
            raise Unavailable(f"telemetry does not know job {job}")
        return Facts(document_target(self._views, document), str(document.get("name", "")))

    def after(self, place: int, most: int) -> list[Found]:
        """Return the first notices behind a place, which must not be before the ring; [] if there are none."""
        found: list[Found] = []
        for one in reversed(self._ring):
            if one[0].place <= place:
                break
            found.append(one)
        found.reverse()
        return found[:most]

    async def past(self, place: int, most: int, wanted: Callable[[Notice], bool]) -> tuple[list[Found], int]:
        """Return about `most` wanted notices behind a place before the ring, read from the log, and the place up to which it was read.
        Raises LogDamaged.
        """
        async with self._readers:
            reader = LogReader(self._bus, after=read_after(place), anchored=False)
            found: list[Found] = []
            reached, commits = place, 0
            try:
                while reached < self.first and len(found) < most and commits < COMMITS_MAX:
                    for one in await reader.next_checked():
                        notices = notices_of(one.seq, one.envelope)
                        found += [(each, self.facts(each)) for each in notices if each.place > place and wanted(each)]
                        reached, commits = place_of(one.seq), commits + 1
                        if len(found) >= most or reached >= self.first:
                            break
            finally:
                await reader.close()
        return found, max(reached, place)
