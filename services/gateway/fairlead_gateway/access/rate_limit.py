"""Rates of requests and of submitted jobs, by caller: a leaky bucket for each, off unless a setting gives a rate.

A caller is a principal, with all tokens and sessions together; without sign-on it is an address with the user that it states. A
caller that sends more than its rate is answered 429 with the seconds until its next request is taken. Pure: time is an argument.
"""

from collections.abc import Hashable
from math import ceil

from fairlead_gateway.errors import HttpError

#: Callers that are remembered; with more, those with the lowest levels are forgotten.
CALLERS_MAX = 10_000


class RateLimit:
    """Bucket for each caller: `per_minute` at once, and as many a minute; 0: no bound."""

    def __init__(self, per_minute: int, code: str, what: str, setting: str) -> None:
        self._most = float(per_minute)
        self._code, self._what, self._setting = code, what, setting
        #: {caller: (level, at which time)}
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def __bool__(self) -> bool:
        return self._most > 0

    def take(self, caller: Hashable, amount: int, now_s: float) -> HttpError | None:
        """Count what a caller sends. Return the refusal (429) where it has sent its rate already, and count nothing then.

        A list may be longer than the rate: it is taken by a caller below its rate, who then waits longer.
        """
        if not self._most:
            return None
        level = self._level(caller, now_s)
        over = level - (self._most - 1)
        if over > 0:
            wait_s = max(1, ceil(over / self._most * 60))
            if self._level(caller, now_s + wait_s) > self._most - 1:
                wait_s += 1  # by rounding, a little is left of the level then
            return HttpError(
                429,
                self._code,
                f"over {self._most:.0f} {self._what} of one caller within a minute; further ones wait",
                hint=f"send more slowly; {self._setting} of the gateway sets the rate",
                retry_after_s=wait_s,
            )
        if len(self._levels) >= CALLERS_MAX and caller not in self._levels:
            self._forget(now_s)
        self._levels[caller] = level + amount, now_s
        return None

    def _level(self, caller: Hashable, now_s: float) -> float:
        found = self._levels.get(caller)
        return 0.0 if found is None else max(0.0, found[0] - (now_s - found[1]) * self._most / 60)

    def _forget(self, now_s: float) -> None:
        kept = sorted(self._levels, key=lambda caller: self._level(caller, now_s))[CALLERS_MAX // 2 :]
        self._levels = {caller: self._levels[caller] for caller in kept if self._level(caller, now_s)}
