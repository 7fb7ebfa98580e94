"""Silence of each node. Pure: time is an argument.

Time never runs backwards here. A jump ahead counts against this process, not against the nodes. If the watch was not
queried for longer than a part of the lease, this process was asleep or its clock was set, and every node counts as
just seen.
"""

from collections import OrderedDict

SECOND_NS = 1_000_000_000
DEFAULT_LEASE_NS = 120 * SECOND_NS


class LeaseWatch:
    """Last contact per node; `silent` names those whose lease is over, `quiet` those that have just stopped to beat."""

    def __init__(self, lease_ns: int = DEFAULT_LEASE_NS, quiet_ns: int = 0) -> None:
        """`quiet_ns`: the silence after which a node is quiet; 0: never."""
        self.lease_ns = lease_ns
        self.quiet_ns = quiet_ns
        #: {node: last contact}, oldest first.
        self._heard: OrderedDict[str, int] = OrderedDict()
        #: {node: its last word}: not moved by being named.
        self._since: dict[str, int] = {}
        #: {node: time of its last sign of life}, oldest first, for nodes that `quiet` has not named since.
        self._talking: OrderedDict[str, int] = OrderedDict()
        self._now = 0
        self._asked = 0
        self._asked_quiet = 0

    def heard(self, node: str, now_ns: int) -> None:
        """The node spoke."""
        self._since[node] = self._at(now_ns)
        if self.quiet_ns:
            self._talking[node] = self._now
            self._talking.move_to_end(node)
        self._watch(node)

    def _watch(self, node: str) -> None:
        self._heard[node] = self._now
        self._heard.move_to_end(node)

    def forget(self, node: str) -> None:
        """Watch it no more."""
        self._heard.pop(node, None)
        self._talking.pop(node, None)
        self._since.pop(node, None)

    def silence_ns(self, node: str) -> int:
        """Return the node's silence in nanoseconds as of the last query of the watch."""
        return self._now - self._since.get(node, self._now)

    def restart(self, now_ns: int) -> None:
        """Count every node as just seen: this process was the one that could not receive."""
        for node in self._heard:
            self._heard[node] = self._since[node] = self._at(now_ns)
        self._talking = OrderedDict.fromkeys(self._talking, self._now)

    def quiet(self, now_ns: int, limit: int = 64) -> list[str]:
        """Return at most `limit` nodes that have been silent for `quiet_ns`; each is named once until its next sign of life."""
        now = self._at(now_ns)
        if self._asked_quiet and now - self._asked_quiet > self.quiet_ns // 2:
            self._talking = OrderedDict.fromkeys(self._talking, now)  # it was we who did not listen
        self._asked_quiet = now
        found: list[str] = []
        while self._talking and len(found) < limit:
            node, last = next(iter(self._talking.items()))
            if now - last < self.quiet_ns:
                break
            found.append(node)
            del self._talking[node]
        return found

    def silent(self, now_ns: int, limit: int = 64) -> list[tuple[str, int]]:
        """Return (node, ns of silence) of at most `limit` nodes whose lease is over; each is then watched from now on."""
        now = self._at(now_ns)
        if self._asked and now - self._asked > self.lease_ns // 2:
            self.restart(now)
        self._asked = now
        found: list[tuple[str, int]] = []
        while self._heard and len(found) < limit:
            node, last = next(iter(self._heard.items()))
            if now - last < self.lease_ns:
                break
            found.append((node, now - last))
            self._watch(node)
        return found

    def next_at(self) -> int | None:
        """Return the time of the next `silent` query, None without nodes: at the first lease's end, and often enough to notice
        this process's own sleep.
        """
        if not self._heard:
            return None
        first = next(iter(self._heard.values())) + self.lease_ns
        first = min(first, self._asked + self.lease_ns // 4) if self._asked else first
        return min(first, self._now + self.quiet_ns // 4) if self._talking else first

    def _at(self, now_ns: int) -> int:
        self._now = max(self._now, now_ns)
        return self._now
