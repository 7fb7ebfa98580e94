"""Decisions of the access core: answers to commands first, then the ends of expired tokens and sessions while the commit has room."""

import heapq
from collections.abc import Iterable, Sequence

from fairlead_access.decide.commands import decide_command
from fairlead_access.decide.draft import AccessDraft
from fairlead_access.limits import EXPIRED_CHUNK
from fairlead_bus.core import Decision, Input
from fairlead_rights.state import AccessState
from fairlead_schemas.wire import events as ev


class ExpirySchedule:
    """Times at which tokens and sessions expire. Derived, no state: entries of things that are gone are skipped when they come."""

    def __init__(self, times: Iterable[int] = ()) -> None:
        self._times = list(times)
        heapq.heapify(self._times)

    def add(self, at_ns: int) -> None:
        """Something expires at this Unix time."""
        heapq.heappush(self._times, at_ns)

    def next_ns(self) -> int | None:
        """Return the earliest time; None if nothing expires."""
        return self._times[0] if self._times else None

    def passed(self, at_ns: int) -> None:
        """Forget the times up to `at_ns`, of which nothing in force is left."""
        while self._times and self._times[0] <= at_ns:
            heapq.heappop(self._times)


def decide(state: AccessState, expiries: ExpirySchedule, inputs: Sequence[Input], now_ns: int) -> Decision:
    """Return the events to commit now."""
    draft = AccessDraft(state, now_ns)
    for command in (command for each in inputs for command in each.body):
        decide_command(draft, command)
    first = expiries.next_ns()
    if first is not None and first <= now_ns and not _expire(draft):
        expiries.passed(
            now_ns
        )  # of things that ended before: without this the core would be woken for them again and again
    return Decision([*draft.events], {each.source: each.position for each in inputs})


def _expire(draft: AccessDraft) -> bool:
    """Emit the end of what has expired. Return False if nothing in force has."""
    ended = {event.token for event in draft.events if isinstance(event, ev.TokenRevoked)}
    ended |= {event.session for event in draft.events if isinstance(event, ev.SessionEnded)}
    found = 0
    for items, end in ((draft.state.tokens, _token_end), (draft.state.sessions, _session_end)):
        for item in items.values():
            if item.expires_ns > draft.now_ns:
                continue
            found += 1
            if item.id in ended or item.principal in draft.suspended:
                continue  # this decision ends it for another reason
            if found > EXPIRED_CHUNK or not draft.fits():
                return True
            draft.emit(end(item.id))
    return bool(found)


def _token_end(token: str) -> ev.TokenRevoked:
    return ev.TokenRevoked(cause="clock", token=token, reason="expired")


def _session_end(session: str) -> ev.SessionEnded:
    return ev.SessionEnded(cause="clock", session=session, reason="expired")
