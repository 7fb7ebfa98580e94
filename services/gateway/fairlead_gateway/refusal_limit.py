"""The bound on refused changes by one client: a program that sends the same mistake in a loop.

Every refused command costs a decision and an event that is kept for ever, and a full log refuses everybody. So a client
whose changes are refused again and again is answered 429 until its rate has fallen; accepted changes count nothing.
A client is an address with the user that it states: there is no other identity yet. Pure: time is an argument.
"""

from typing import NamedTuple

from fairlead_gateway.problems import Refused

#: Clients that are remembered; with more, those with the fewest refusals are forgotten.
CLIENTS_MAX = 10_000


class _Level(NamedTuple):
    """Refusals that count against a client at a moment; they decay evenly."""

    refusals: float
    at_s: float


class RefusalLimit:
    """A leaky bucket for each client: `per_minute` refusals at once, and as many a minute; 0: no bound."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._levels: dict[tuple[str, str], _Level] = {}

    def check(self, client: tuple[str, str], now_s: float) -> Refused | None:
        """Return the refusal (429) of a client over the bound, else None."""
        if not self._levels:
            return None
        level = self._level(client, now_s)
        if level <= self._most - 1:
            return None
        wait_s = int((level - self._most + 1) / self._most * 60) + 1
        return Refused(
            429, "too_many_refusals",
            f"over {self._most:.0f} of this client's changes were refused within a minute; further ones wait",
            hint="mend what the refusals name before sending more; reading goes on", retry_after_s=wait_s,
        )  # fmt: skip

    def count(self, client: tuple[str, str], refusals: int, now_s: float) -> None:
        """Count refused changes of a client."""
        if not self._most:
            return
        if len(self._levels) >= CLIENTS_MAX and client not in self._levels:
            self._forget(now_s)
        # Bounded, so that one answer about a long list cannot shut a client out for hours.
        self._levels[client] = _Level(min(self._level(client, now_s) + refusals, 2 * self._most), now_s)

    def _level(self, client: tuple[str, str], now_s: float) -> float:
        found = self._levels.get(client)
        if found is None:
            return 0.0
        return max(0.0, found.refusals - (now_s - found.at_s) * self._most / 60)

    def _forget(self, now_s: float) -> None:
        kept = sorted(self._levels, key=lambda client: self._level(client, now_s))[CLIENTS_MAX // 2 :]
        self._levels = {client: self._levels[client] for client in kept if self._level(client, now_s)}
