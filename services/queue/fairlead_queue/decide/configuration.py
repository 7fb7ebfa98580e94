"""Outlook of a change of queues and pools: the configuration after it, and the steps that it takes. `validation.py` decides
if the change is allowed. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fairlead_queue.state import QueueState
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, PoolEntry, PoolSettings, QueueEntry, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev


class ProposedConfiguration(NamedTuple):
    """Configuration after a change of queues and pools, and the steps that the change takes."""

    pools: dict[str, PoolSettings]
    queues: dict[str, QueueSettings]
    #: Paths to be removed, those below before those above, and where their jobs go.
    removed: dict[str, str]
    dropped_pools: list[str]


def current_configuration(state: QueueState) -> ProposedConfiguration:
    """Return the present configuration as an outlook that removes nothing."""
    pools = {name: pool.settings for name, pool in state.pools.items()}
    return ProposedConfiguration(pools, {path: queue.settings for path, queue in state.queues.items()}, {}, [])


def proposed_configuration(before: ProposedConfiguration, command: cmd.ApplyQueues) -> ProposedConfiguration:
    """Return the configuration that the command makes out of `before`."""
    pools, queues = dict(before.pools), dict(before.queues)
    named = {entry.path for entry in command.queues}
    removed = {each.path: each.move_to for each in command.remove}
    dropped: list[str] = []
    if command.prune:
        kept = named.union(*(_above(path) for path in named))
        removed.update({path: "" for path in queues if path not in kept and path not in removed})
        named_pools = {entry.pool for entry in command.pools}
        dropped = sorted(name for name in pools if name not in named_pools and name != DEFAULT_POOL)
    pools.update({entry.pool: entry.settings for entry in command.pools})
    queues.update({entry.path: entry.settings for entry in command.queues})
    for entry in command.queues:
        _grow(queues, removed, entry.path)
    deepest_first = sorted(removed, key=lambda path: (-path.count("/"), path))
    for path in deepest_first:
        queues.pop(path, None)
    for name in dropped:
        del pools[name]
    return ProposedConfiguration(pools, queues, {path: removed[path] for path in deepest_first}, dropped)


def _above(path: str) -> list[str]:
    """All queues above one, from the top."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _grow(queues: dict[str, QueueSettings], removed: Mapping[str, str], path: str) -> None:
    """Queues above it that are missing are made, without limits."""
    above = path.rpartition("/")[0]
    while above and above not in queues and above not in removed:
        queues[above] = QueueSettings()
        above = above.rpartition("/")[0]


def changed_entries(before: ProposedConfiguration, after: ProposedConfiguration) -> list[PoolEntry | QueueEntry]:
    """Return the entries whose settings differ from before: pools first, then queues from the top."""
    pools = [
        PoolEntry(pool=name, settings=each) for name, each in after.pools.items() if before.pools.get(name) != each
    ]
    queues = [
        QueueEntry(path=path, settings=each)
        for path, each in after.queues.items()
        if _differs(before.queues.get(path), each)
    ]
    queues.sort(key=lambda each: (each.path.count("/"), each.path))
    return [*pools, *queues]


def _differs(old: QueueSettings | None, new: QueueSettings) -> bool:
    return old is not new and old != new


def affected_queues(before: ProposedConfiguration, after: ProposedConfiguration) -> list[str]:
    """Queues whose limits or whose place a change may make wrong, sorted: those that change, all above them, and those
    right below. Where pools change it may be any. The others are as right as they were."""
    pools_of = [
        {path: each.pool for path, each in queues.items() if each.pool} for queues in (before.queues, after.queues)
    ]
    if before.pools != after.pools or pools_of[0] != pools_of[1]:
        return sorted(after.queues)
    touched = {path for path, each in after.queues.items() if _differs(before.queues.get(path), each)}
    touched.update(after.removed)
    found = set(touched)
    for path in touched:
        found.update(_above(path))
    if touched:
        found.update(path for path in after.queues if path.rpartition("/")[0] in touched)
    return sorted(found.intersection(after.queues))


def configuration_events(
    changed: Sequence[PoolEntry | QueueEntry], after: ProposedConfiguration, cause: str, by: str
) -> Iterator[ev.QueueEvent]:
    """Yield the events that are committed for a change. Each event comes after the events that it depends on."""
    for each in changed:
        if isinstance(each, PoolEntry):
            yield ev.PoolConfigured(cause=cause, pool=each.pool, settings=each.settings, by=by)
        else:
            yield ev.QueueConfigured(cause=cause, path=each.path, settings=each.settings, by=by)
    for path, move_to in after.removed.items():
        yield ev.QueueRemoved(cause=cause, path=path, move_to=move_to, by=by)
    for name in after.dropped_pools:
        yield ev.PoolRemoved(cause=cause, pool=name, by=by)
