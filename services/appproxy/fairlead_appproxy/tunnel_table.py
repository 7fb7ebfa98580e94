"""Tunnels that are expected, and the two ends of each that come with a secret that is good once. Pure.

Start at `TunnelTable.arrive`.
"""

from collections import Counter
from typing import NamedTuple

from fairlead_schemas.wire.tunnels import MEET_S, ExpectTunnel, Tunnel, digest

#: Tunnels that are expected or open, in all and of one person.
TUNNELS_MAX = 2000
TUNNELS_OF_ONE_MAX = 100


class NotExpected(Exception):
    """No end with this secret is expected, or no longer; the words do not tell which."""


class Full(Exception):
    """There are as many tunnels as there may be; the message says whose."""


class ExpectedTunnel(NamedTuple):
    """Tunnel that at least one end has not come to yet. `until`: in the caller's seconds."""

    tunnel: Tunnel
    client: str
    node: str
    until: float


class TunnelTable:
    """Table of expected and open tunnels."""

    def __init__(self) -> None:
        #: {digest of a secret that has not been used: its tunnel}
        self._secrets: dict[str, ExpectedTunnel] = {}
        #: {id: tunnel} of those whose ends have not both come, and of those that are open.
        self._expected: dict[str, ExpectedTunnel] = {}
        self.open: dict[str, Tunnel] = {}
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._expected) + len(self.open)

    def expect(self, question: ExpectTunnel, now: float) -> None:
        """Expect both ends of a tunnel. Raises Full."""
        tunnel = question.tunnel
        if tunnel.id in self._expected or tunnel.id in self.open:
            return
        if len(self) >= TUNNELS_MAX:
            raise Full(f"the app proxy has {TUNNELS_MAX} tunnels already; close some")
        if tunnel.principal and self._of[tunnel.principal] >= TUNNELS_OF_ONE_MAX:
            raise Full(f"you have {TUNNELS_OF_ONE_MAX} tunnels already; close some")
        expected = ExpectedTunnel(tunnel, question.client, question.node, now + MEET_S)
        self._expected[tunnel.id] = self._secrets[question.client] = self._secrets[question.node] = expected
        self._of[tunnel.principal] += 1

    def arrive(self, secret: str, now: float, *, is_client: bool) -> Tunnel:
        """Take an end's secret, which counts once and for this end alone. Raises NotExpected."""
        found = self._secrets.get(key := digest(secret))
        if found is None or now >= found.until or key != (found.client if is_client else found.node):
            raise NotExpected("no tunnel is expected with this code: ask for a new one")
        del self._secrets[key]
        if not self._secrets.keys() & {found.client, found.node}:
            del self._expected[found.tunnel.id]
            self.open[found.tunnel.id] = found.tunnel
        return found.tunnel

    def end(self, tunnel: str) -> None:
        """Forget a tunnel, expected or open."""
        expected = self._expected.pop(tunnel, None)
        ended = expected.tunnel if expected is not None else self.open.pop(tunnel, None)
        if expected is not None:
            self._secrets.pop(expected.client, None)
            self._secrets.pop(expected.node, None)
        if ended is not None:
            self._of[ended.principal] -= 1
            self._of += Counter()  # without those that have none

    def overdue(self, now: float) -> list[str]:
        """Return the tunnels whose ends have not both come in time."""
        return [name for name, each in self._expected.items() if now >= each.until]
