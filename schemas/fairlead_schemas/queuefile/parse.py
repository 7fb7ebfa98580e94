"""The queue file: what people write about queues and pools, decoded strictly and turned into integers.

    pools:
      default: {sequencer: drf, ageing: {every: 1h, most: 20}, patience: 5m}
    queues:
      research:
        guaranteed: {nvidia.com/gpu: 16, cpu: 256, memory: 2Ti, "nvidia.com/gpu:NVIDIA-A100-SXM4-80GB": 8}
        maximum: {nvidia.com/gpu: 64}
        users: {default: {nvidia.com/gpu: 8}}
        queues: {vision: {weight: 2}, speech: {}}       # or flat: "research/vision": {weight: 2}

`read_queue_file` gives the entries of an `ApplyQueues`, or every mistake at once, each at its path in the file.
What needs the present tree (parents, sums of guarantees, pools and sequencers that exist) is the queue service's
to check. One queue is read in `settings_format.py`, one pool in `settings_format.py`. Start at `read_queue_file`;
`queue_file` is its inverse.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fairlead_schemas.queuefile.settings import (
    CHANGES_MAX,
    DEFAULT_POOL,
    PoolEntry,
    PoolSettings,
    QueueEntry,
    QueueSettings,
)
from fairlead_schemas.queuefile.settings_format import (
    PoolWords,
    QueueRole,
    QueueWords,
    pool_words,
    queue_words,
    read_pool,
    read_queue,
    read_roles,
)
from fairlead_schemas.units.ids import QUEUE_DEPTH_MAX, is_token
from fairlead_schemas.units.validation import ErrorCollector, InvalidDocument, shown


class QueueFileWords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A queue file: pools by name; queues by name or path, nested as deep as wanted."""

    pools: dict[str, PoolWords | None] = {}
    queues: dict[str, QueueWords | None] = {}


class InvalidQueues(InvalidDocument):
    """A queue file was refused."""


class QueueFile(NamedTuple):
    """Entries of one file, by name and path; a queue precedes its children."""

    pools: tuple[PoolEntry, ...]
    queues: tuple[QueueEntry, ...]
    #: {path: (subject, role) pairs}, of queues that state some.
    roles: dict[str, tuple[tuple[str, QueueRole], ...]] = {}


def read_queue_file(value: Any) -> QueueFile:
    """The entries of a file given as plain values (of YAML or JSON). Raises InvalidQueues with every mistake."""
    reading = ErrorCollector()
    fields = reading.fields(value, QueueFileWords, "")
    pools = [
        PoolEntry(pool=name, settings=read_pool(reading, name, words, at))
        for name, words, at in reading.entries(fields.get("pools", {}), "pools")
    ]
    tree = _Tree(reading)
    tree.read(fields.get("queues", {}), "queues", above="")
    tree.check_pools()
    changes = len(pools) + len(tree.entries)
    if changes > CHANGES_MAX:
        reading.wrong(
            "", f"expected at most {CHANGES_MAX} pools and queues in one change, found {changes}; split the file"
        )
    if not changes and not reading.errors:
        reading.wrong("", "expected pools or queues, found neither")
    reading.refuse(InvalidQueues)
    return QueueFile(
        tuple(sorted(pools, key=lambda entry: entry.pool)),
        tuple(sorted(tree.entries, key=lambda entry: entry.path.split("/"))),
        tree.roles,
    )


def read_settings(value: Any, path: str) -> tuple[QueueSettings, tuple[tuple[str, QueueRole], ...]]:
    """Settings and roles of the queue at `path`, given as plain values without those below. Raises InvalidQueues."""
    reading = ErrorCollector()
    fields = reading.fields(value, QueueWords, "")
    settings = read_queue(reading, fields, "")
    roles = read_roles(reading, fields.get("roles", {}), "roles")
    if "queues" in fields:
        reading.wrong("queues", "expected one queue's settings; a whole tree goes to POST /v1/queues:apply")
    if fields.get("pool") and "/" in path:
        top = path.partition("/")[0]
        reading.wrong("pool", f"expected none below the top: this queue is in the pool of {top}; leave it out")
    reading.refuse(InvalidQueues)
    return settings, roles


class _Tree:
    """The queues of one file: paths put together, each once."""

    def __init__(self, reading: ErrorCollector) -> None:
        self.entries: list[QueueEntry] = []
        #: {path: what it states}
        self.roles: dict[str, tuple[tuple[str, QueueRole], ...]] = {}
        self._reading = reading
        #: {path: its position in the file}
        self._at: dict[str, str] = {}
        #: {path: the pool that it names}
        self._pools: dict[str, str] = {}

    def read(self, value: Any, at: str, above: str) -> None:
        """Queues by name or path, and all below them."""
        for key, words, place in self._reading.entries(value, at):
            path = f"{above}/{key}" if above else key
            fields = self._reading.fields({} if words is None else words, QueueWords, place)
            settings = read_queue(self._reading, fields, place)
            if self._enter(path, key, place):
                self._pools[path] = fields.get("pool", "")
                if "/" in path:
                    settings = msgspec.structs.replace(settings, pool="")
                self.entries.append(QueueEntry(path=path, settings=settings))
                if roles := read_roles(self._reading, fields.get("roles", {}), f"{place}.roles"):
                    self.roles[path] = roles
            if path.count("/") < QUEUE_DEPTH_MAX:
                self.read(fields.get("queues", {}), f"{place}.queues", path)

    def _enter(self, path: str, key: str, place: str) -> bool:
        if not all(is_token(part) for part in key.split("/")):
            self._reading.wrong(place, f'expected names of a-z 0-9 _ - (at most 63) joined by "/", found {shown(key)}')
        elif path.count("/") >= QUEUE_DEPTH_MAX:
            self._reading.wrong(place, f"expected queues at most {QUEUE_DEPTH_MAX} deep, found {shown(path)}")
        elif path in self._at:
            self._reading.wrong(place, f"{path} is given twice: it is {self._at[path]} already; keep one of them")
        else:
            self._at[path] = place
            return True
        return False

    def check_pools(self) -> None:
        """Below the top, a queue is in the pool of the queue at the top."""
        for path, pool in self._pools.items():
            top = path.partition("/")[0]
            if not pool or top == path:
                continue
            at = f"{self._at[path]}.pool"
            if top not in self._at:
                self._reading.wrong(at, f"expected none below the top: {path} is in the pool of {top}; leave it out")
            elif pool != (expected := self._pools[top] or DEFAULT_POOL):
                told = f'expected none, or "{expected}" as {top} has it, found "{pool}"'
                self._reading.wrong(at, f"{told}; leave it out, or change {self._at[top]}.pool")


def queue_file(pools: Mapping[str, PoolSettings], queues: Mapping[str, QueueSettings]) -> dict[str, Any]:
    """The file that says this: the inverse of `read_queue_file`."""
    return words_file(
        {name: pool_words(settings) for name, settings in pools.items()},
        {path: queue_words(settings) for path, settings in queues.items()},
    )


def words_file(pools: Mapping[str, dict[str, Any]], queues: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a file of settings that are words already; a queue is below its parent if the parent is present."""
    tops: dict[str, Any] = {}
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(queues, key=lambda path: path.split("/")):
        words = found[path] = dict(queues[path])
        above, _, name = path.rpartition("/")
        if above in found:
            found[above].setdefault("queues", {})[name] = words
        else:
            tops[path] = words
    return {part: entries for part, entries in (("pools", dict(sorted(pools.items()))), ("queues", tops)) if entries}
