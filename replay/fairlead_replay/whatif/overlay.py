"""Overlay: what a person would have had otherwise, on top of what was given.

    sequencer: fifo                      # of the default pool
    pools: {default: {patience: 1m}}     # settings as in a queue file; those that are not named stay as they were
    queues: {research: {guaranteed: {nvidia.com/gpu: 16}}}
    nodes:
      add: [{like: n017, count: 4}]
      remove: [n003, n004]

Every recorded change of queues is applied as it came, with the overlay on top. `read_overlay` reads the words;
`PlannedChange` holds them against a recording, and is what a play asks.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from fairlead_replay.whatif.commands import Command
from fairlead_replay.whatif.given import Given, GivenCommand, GivenFact
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.stimuli import CHANGE_ID, Changes
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, PoolEntry, PoolSettings, QueueEntry, QueueSettings
from fairlead_schemas.queuefile.settings_format import (
    PoolWords,
    QueueWords,
    pool_words,
    queue_words,
    read_pool,
    read_queue,
)
from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.validation import ErrorCollector, InvalidDocument, joined
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.resources import Inventory

ADDED_MAX, NAMED_MAX = 4096, 8


class AddedWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that are added: like one that there is."""

    like: str
    count: int = 1


class NodesWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that come and go at the window's start."""

    add: list[dict[str, Any]] = []
    remove: list[str] = []


class OverlayWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An overlay file."""

    sequencer: str = ""
    pools: dict[str, PoolWords | None] = {}
    queues: dict[str, QueueWords | None] = {}
    nodes: NodesWords = NodesWords()


class InvalidOverlay(InvalidDocument):
    """An overlay was refused."""


class Overlay(NamedTuple):
    """Overlay as read: settings stay words until it is known what they are put upon."""

    pools: dict[str, dict[str, Any]]
    queues: dict[str, dict[str, Any]]
    #: (like, how many)
    added: tuple[tuple[str, int], ...] = ()
    removed: tuple[str, ...] = ()


def read_overlay(value: Any) -> Overlay:
    """Read an overlay of plain values (of YAML or JSON). Raises InvalidOverlay with every mistake."""
    reading = ErrorCollector()
    fields = reading.fields({} if value is None else value, OverlayWords, "")
    pools = {name: dict(words or {}) for name, words, _ in reading.entries(fields.get("pools", {}), "pools")}
    for name, words in pools.items():
        read_pool(reading, name, words, f"pools.{name}")
    sequencer = fields.get("sequencer", "")
    if sequencer:
        if "sequencer" in pools.get(DEFAULT_POOL, {}):
            reading.wrong("sequencer", f"pools.{DEFAULT_POOL}.sequencer says it, too; keep one of them")
        if not is_token(sequencer):
            reading.wrong("sequencer", f'expected a name such as "drf" or "fifo", found "{sequencer}"')
        pools.setdefault(DEFAULT_POOL, {})["sequencer"] = sequencer
    queues = dict(_queues(reading, fields.get("queues", {}), "queues", ""))
    nodes = reading.fields(fields.get("nodes", {}), NodesWords, "nodes")
    added = tuple(_added(reading, nodes.get("add", [])))
    if not (pools or queues or added or nodes.get("remove")) and not reading.errors:
        reading.wrong("", "expected sequencer, pools, queues or nodes, found none of them: nothing would be different")
    reading.refuse(InvalidOverlay)
    return Overlay(pools, queues, added, tuple(nodes.get("remove", [])))


def _queues(reading: ErrorCollector, value: Any, at: str, above: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, words, place in reading.entries(value, at):
        path = f"{above}/{key}" if above else key
        fields = reading.fields({} if words is None else words, QueueWords, place)
        below = fields.pop("queues", {})
        if fields.pop("roles", None) is not None:
            reading.wrong(f"{place}.roles", "roles decide nothing in a play; leave them out")
        read_queue(reading, fields, place)
        if fields or not below:
            yield path, fields
        yield from _queues(reading, below, f"{place}.queues", path)


def _added(reading: ErrorCollector, values: list[Any]) -> Iterator[tuple[str, int]]:
    for index, words in enumerate(values):
        at = f"nodes.add[{index}]"
        fields = reading.fields(words, AddedWords, at)
        count = reading.whole(fields.get("count", 1), joined(at, "count"), 1, ADDED_MAX)
        if "like" in fields:
            yield fields["like"], count


# ---------------------------------------------------------------------------- held against a recording


class PlannedChange(Changes):
    """An overlay on a recording. One object serves one play."""

    def __init__(self, overlay: Overlay, recording: LogRecording) -> None:
        """Raises InvalidOverlay where it names what the recording does not have."""
        self._overlay, self._recording = overlay, recording
        state = recording.start.cluster()
        self._queues = {path: queue.settings for path, queue in state.queue.state.queues.items()}
        self._pools = {name: pool.settings for name, pool in state.queue.state.pools.items()}
        self._pools.setdefault(DEFAULT_POOL, PoolSettings())
        self._there = {name: node.inventory for name, node in state.placer.state.nodes.items()}
        self._inventories = dict(self._there)
        for fact in recording.given:
            if isinstance(fact, GivenFact) and fact.inventory is not None:
                self._inventories.setdefault(fact.node, fact.inventory)
        self._removed = frozenset(overlay.removed) - self._there.keys()
        #: Settings that the record changes, too: the overlay's are kept.
        self.conflicts: Counter[str] = Counter()
        #: Ids of recorded commands that are given with the overlay on top.
        self._changed: set[str] = set()
        self._check()

    def _check(self) -> None:
        reading = ErrorCollector()
        changes = [
            given.command
            for given in self._recording.given
            if isinstance(given, GivenCommand) and isinstance(given.command, cmd.ApplyQueues)
        ]
        queues = {*self._queues, *(entry.path for each in changes for entry in each.queues)}
        pools = {*self._pools, *(entry.pool for each in changes for entry in each.pools)}
        for path in self._overlay.queues.keys() - queues:
            reading.wrong(f"queues.{path}", f"expected a queue of the window{_known(path, queues)}")
        for name in self._overlay.pools.keys() - pools:
            reading.wrong(f"pools.{name}", f"expected a pool of the window{_known(name, pools)}")
        for index, (like, _) in enumerate(self._overlay.added):
            if like not in self._inventories:
                reading.wrong(
                    f"nodes.add[{index}].like", f"expected a node of the window{_known(like, set(self._inventories))}"
                )
        for index, name in enumerate(self._overlay.removed):
            if name not in self._inventories:
                reading.wrong(
                    f"nodes.remove[{index}]", f"expected a node of the window{_known(name, set(self._inventories))}"
                )
        if self._inventories and not self._overlay.added and self._inventories.keys() <= set(self._overlay.removed):
            reading.wrong("nodes.remove", "expected a node that is left, found none: no job could ever start")
        for path, words in self._overlay.queues.items():
            self._queue(path, words, self._queues.get(path, QueueSettings()), reading)
        reading.refuse(InvalidOverlay)

    def _queue(self, path: str, words: dict[str, Any], below: QueueSettings, reading: ErrorCollector) -> QueueSettings:
        at = f"queues.{path}"
        fields = reading.fields({**queue_words(below), **words}, QueueWords, at)
        settings = read_queue(reading, fields, at)
        return msgspec.structs.replace(settings, pool=below.pool) if "/" in path else settings

    def _pool(self, name: str, words: dict[str, Any], below: PoolSettings) -> PoolSettings:
        return read_pool(ErrorCollector(), name, {**pool_words(below), **words}, f"pools.{name}")

    # ------------------------------------------------------------------ what a play asks

    def first(self, at_ns: int) -> list[Given]:
        """Return the change of what there is at the start, nodes that come, and the drain of nodes that go."""
        given: list[Given] = []
        queues = [
            QueueEntry(path=path, settings=self._queue(path, words, self._queues[path], ErrorCollector()))
            for path, words in self._overlay.queues.items()
            if path in self._queues
        ]
        pools = [
            PoolEntry(pool=name, settings=self._pool(name, words, self._pools[name]))
            for name, words in self._overlay.pools.items()
            if name in self._pools
        ]
        if queues or pools:
            apply = cmd.ApplyQueues(id=CHANGE_ID, user=CHANGE_ID, pools=tuple(pools), queues=tuple(queues))
            given.append(GivenCommand(at_ns, 0, "queue", 0, apply))
        for like, count in self._overlay.added:
            for number in range(1, count + 1):
                name = f"{like[: TOKEN_CHARS_MAX - 12]}-plus-{number}"
                inventory = _copy_of(self._inventories[like], name)
                given.append(GivenFact(at_ns, name, "joined", inventory, f"{name}-{CHANGE_ID}", CHANGE_ID))
        for name in self._overlay.removed:
            if name in self._there:
                drain = cmd.DrainNode(id=f"{CHANGE_ID}-{name}"[:80], user=CHANGE_ID, node=name, deadline_ns=1)
                given.append(GivenCommand(at_ns, 0, "placer", 0, drain))
        return given

    def command(self, command: Command) -> Command | None:
        """Return a recorded change of queues with the overlay on top, and everything else as it is."""
        if isinstance(command, cmd.UncordonNode) and command.node in self._overlay.removed:
            return None
        if not isinstance(command, cmd.ApplyQueues) or command.id == CHANGE_ID:
            return command
        queues = tuple([self._overlaid_queue(entry) for entry in command.queues])
        pools = tuple([self._overlaid_pool(entry) for entry in command.pools])
        if queues != command.queues or pools != command.pools:
            self._changed.add(command.id)
        for each in command.remove:
            if each.path in self._overlay.queues:
                self.conflicts[f"queues.{each.path}: the record removes the queue"] += 1
        return msgspec.structs.replace(command, queues=queues, pools=pools)

    def has_node(self, node: str) -> bool:
        """Return False for removed nodes that would have come later."""
        return node not in self._removed

    def made(self, command: str) -> bool:
        """Return True for the id of a command that the overlay made or changed."""
        return super().made(command) or command in self._changed

    def _overlaid_queue(self, entry: QueueEntry) -> QueueEntry:
        words = self._overlay.queues.get(entry.path)
        before, self._queues[entry.path] = self._queues.get(entry.path), entry.settings
        if words is None:
            return entry
        if before is not None:
            self._note(f"queues.{entry.path}", words, queue_words(before), queue_words(entry.settings))
        return QueueEntry(path=entry.path, settings=self._queue(entry.path, words, entry.settings, ErrorCollector()))

    def _overlaid_pool(self, entry: PoolEntry) -> PoolEntry:
        words = self._overlay.pools.get(entry.pool)
        before, self._pools[entry.pool] = self._pools.get(entry.pool), entry.settings
        if words is None:
            return entry
        if before is not None:
            self._note(f"pools.{entry.pool}", words, pool_words(before), pool_words(entry.settings))
        return PoolEntry(pool=entry.pool, settings=self._pool(entry.pool, words, entry.settings))

    def _note(self, at: str, words: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
        for name in words:
            if before.get(name) != after.get(name):
                self.conflicts[f"{at}.{name}: the record changes it, too"] += 1


def _known(name: str, names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:NAMED_MAX]) or "none"
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f' ({shown}{more}), found "{name}"{did_you_mean(name, sorted(names))}'


def _copy_of(inventory: Inventory, name: str) -> Inventory:
    """Return the inventory of a new node with equal devices; they are not cut, and have UUIDs of their own."""
    gpus = tuple(
        [msgspec.structs.replace(gpu, uuid=f"{name}-g{at}", instances=()) for at, gpu in enumerate(inventory.gpus)]
    )
    return msgspec.structs.replace(inventory, gpus=gpus, hostname=name)
