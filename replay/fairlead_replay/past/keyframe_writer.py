"""Keyframes made along a fold: of a live process as commits come (`KeyframeWriter`), or of a log as a whole (`KeyframeBuild`)."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import structlog

from fairlead_bus.log import Chain, Folded, LogHead
from fairlead_bus.port import Bus, LogDamaged, Stored
from fairlead_gateway.views.fold import Views
from fairlead_replay.audit import read_log
from fairlead_replay.past.keyframes import BYTES_MAX, COMMIT_WEIGHT, KeyframePlace, KeyframeStore
from fairlead_schemas.wire.commit import CommitUndecodable, commit_hash, decode_commit

#: A keyframe is due when events, and commits times COMMIT_WEIGHT, have come to so much since the last one. A fold from one to a moment
#: then takes at most a second.
WEIGHT_MAX = 100_000

log = structlog.get_logger()


class KeyframeWriter:
    """Counts what is folded, and stores the views when that is due, one keyframe at a time.

    `store` is None until the log has a first commit: a keyframe is bound to it.
    """

    def __init__(self, views: Views, heads: dict[str, LogHead], *, events: int = 0) -> None:
        self.store: KeyframeStore | None = None
        self._views, self._heads = views, heads
        #: Events of the log up to the fold.
        self.events = events
        self.written = 0
        self._weight = 0
        self._task: asyncio.Task[bool] | None = None

    def folded(self, batch: list[Folded]) -> None:
        """Take note of commits that the views have folded."""
        for each in batch:
            count = len(each.commit.events)
            self.events += count
            self._weight += count + COMMIT_WEIGHT
            self._heads[each.writer] = each.head
        if self._weight >= WEIGHT_MAX and self.store is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._write(self.store), name="keyframe")

    async def _write(self, store: KeyframeStore) -> bool:
        # What a thread compresses was encoded before anything else could be folded.
        self._weight = 0
        views, heads = self._views, dict(self._heads)
        place = KeyframePlace(views.sequence, views.at_ns, self.events, 0)
        state = views.snapshot()
        done = await asyncio.to_thread(store.write, state, place, heads)
        self.written += done
        return done

    async def settle(self) -> None:
        """Wait for a keyframe that is being stored."""
        if self._task is not None:
            await asyncio.wait((self._task,))


class KeyframeBuild:
    """Keyframes of a whole log, which is added message by message. Those that are there already are not made again."""

    def __init__(self, directory: Path, *, weight_max: int = 0, bytes_max: int = BYTES_MAX) -> None:
        self._directory = directory
        self._weight_max, self._bytes_max = weight_max or WEIGHT_MAX, bytes_max
        self._views, self._chain = Views(), Chain()
        self._events = self._weight = 0
        #: None until the first message.
        self.store: KeyframeStore | None = None

    def add(self, stored: Stored) -> None:
        """Fold the next message, and store a keyframe where one is due. Raises LogDamaged."""
        try:
            commit = decode_commit(stored.payload)
        except CommitUndecodable as error:
            raise LogDamaged(stored.sequence, str(error)) from error
        self._chain.extend(stored, commit)
        if self.store is None:
            self.store = KeyframeStore(self._directory, commit_hash(stored.payload), self._bytes_max)
            self.store.open()
        try:
            self._views.fold(stored.sequence, commit)
        except KeyError as error:
            raise LogDamaged(stored.sequence, f"not valid: {error}") from error
        self._events += len(commit.events)
        self._weight += len(commit.events) + COMMIT_WEIGHT
        if self._weight >= self._weight_max:
            self._weight = 0
            if all(place.sequence != self._views.sequence for place in self.store.places):
                place = KeyframePlace(self._views.sequence, self._views.at_ns, self._events, 0)
                self.store.write(self._views.snapshot(), place, dict(self._chain.heads))


def build(
    messages: Iterable[Stored], directory: Path, *, weight_max: int = 0, bytes_max: int = BYTES_MAX
) -> KeyframeStore | None:
    """Store the keyframes of a log; return their store, None for an empty log. Raises LogDamaged."""
    made = KeyframeBuild(directory, weight_max=weight_max, bytes_max=bytes_max)
    for stored in messages:
        made.add(stored)
    return made.store


async def build_live(bus: Bus, directory: Path) -> KeyframeStore | None:
    """Store the keyframes of the log on the bus, up to its end. Raises LogDamaged, Unavailable."""
    made = KeyframeBuild(directory)
    async for stored in read_log(bus):
        made.add(stored)
    return made.store
