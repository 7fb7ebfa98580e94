"""The bound on refused changes by one client: a program that sends the same mistake in a loop.

Every refused command costs a decision and an event that is kept permanently, and a full log refuses every client.
So a client whose changes are refused again and again is answered 429 until its rate has fallen; accepted changes
count nothing. A client is an address with the user that it states: there is no other identity yet. Users can be
made up, so an address as a whole has a bound, too, wide enough for many people behind one proxy. Pure: time is an
argument.
"""

from typing import NamedTuple

from fairlead_gateway.problems import Refused

#: Clients that are remembered; with more, those with the fewest refusals are forgotten.
CLIENTS_MAX = 10_000
#: The bound of an address in those of one client.
ADDRESS_FACTOR = 10


#: An address with a stated user, or (None) with all of them.
type _Key = tuple[str, str | None]


class _Level(NamedTuple):
    """Refusals that count against a client at a moment; they decay evenly."""

    refusals: float
    at_s: float


class RefusalLimit:
    """A leaky bucket for each client: `per_minute` refusals at once, and as many a minute; 0: no bound."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._levels: dict[_Key, _Level] = {}

    def check(self, client: tuple[str, str], now_s: float) -> Refused | None:
        """Return the refusal (429) of a client or address over its bound, else None."""
        if not self._levels:
            return None
        address, _ = client
        for key, most in ((client, self._most), ((address, None), ADDRESS_FACTOR * self._most)):
            over = self._level(key, now_s) - (most - 1)
            if over > 0:
                wait_s = int(over / most * 60) + 1
                return Refused(
                    429, "too_many_refusals",
                    f"over {most:.0f} changes of this client or address were refused within a minute; further ones wait",
                    hint="mend what the refusals name before sending more; reading goes on", retry_after_s=wait_s,
                )  # fmt: skip
        return None

    def count(self, client: tuple[str, str], refusals: int, now_s: float) -> None:
        """Count refused changes of a client."""
        if not self._most:
            return
        if len(self._levels) >= CLIENTS_MAX - 1 and client not in self._levels:
            self._forget(now_s)
        address, _ = client
        for key, most in ((client, self._most), ((address, None), ADDRESS_FACTOR * self._most)):
            # Bounded, so that one answer about a long list cannot shut a client out for hours.
            self._levels[key] = _Level(min(self._level(key, now_s) + refusals, 2 * most), now_s)

    def _level(self, key: _Key, now_s: float) -> float:
        found = self._levels.get(key)
        if found is None:
            return 0.0
        most = self._most if key[1] is not None else ADDRESS_FACTOR * self._most
        return max(0.0, found.refusals - (now_s - found.at_s) * most / 60)

    def _forget(self, now_s: float) -> None:
        kept = sorted(self._levels, key=lambda key: self._level(key, now_s))[CLIENTS_MAX // 2 :]
        self._levels = {key: self._levels[key] for key in kept if self._level(key, now_s)}
