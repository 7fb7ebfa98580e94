"""How long each node has been silent. Pure: time is an argument.

Time never runs backwards here, and a jump ahead counts against us, not against the nodes: if nobody asked for
longer than a part of the lease, this process was asleep or its clock was set, and every node is heard anew.
"""

from collections import OrderedDict

SECOND_NS = 1_000_000_000
DEFAULT_LEASE_NS = 120 * SECOND_NS


class LeaseWatch:
    """Last contact per node; `silent` names those whose lease is over."""

    def __init__(self, lease_ns: int = DEFAULT_LEASE_NS) -> None:
        self.lease_ns = lease_ns
        #: {node: last contact}, oldest first.
        self._heard: OrderedDict[str, int] = OrderedDict()
        #: {node: its last word}: not moved by being named.
        self._since: dict[str, int] = {}
        self._now = 0
        self._asked = 0

    def heard(self, node: str, now_ns: int) -> None:
        """The node spoke."""
        self._since[node] = self._at(now_ns)
        self._watch(node)

    def _watch(self, node: str) -> None:
        self._heard[node] = self._now
        self._heard.move_to_end(node)

    def forget(self, node: str) -> None:
        """Watch it no more."""
        self._heard.pop(node, None)
        self._since.pop(node, None)

    def silence_ns(self, node: str) -> int:
        """How long it had said nothing when the watch was asked last."""
        return self._now - self._since.get(node, self._now)

    def restart(self, now_ns: int) -> None:
        """Count every node as heard now: it was we who could not hear."""
        for node in self._heard:
            self._heard[node] = self._since[node] = self._at(now_ns)

    def silent(self, now_ns: int, limit: int = 64) -> list[tuple[str, int]]:
        """(node, ns of silence) of at most `limit` nodes whose lease is over; each is then watched anew."""
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
        """When `silent` must be asked next: at the first lease's end, and often enough to notice our own sleep."""
        if not self._heard:
            return None
        first = next(iter(self._heard.values())) + self.lease_ns
        return min(first, self._asked + self.lease_ns // 4) if self._asked else first

    def _at(self, now_ns: int) -> int:
        self._now = max(self._now, now_ns)
        return self._now
