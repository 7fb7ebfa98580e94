"""Check of the access service's events, by the events alone. Shares no code with the access core.

Checked: a command is answered in one commit; whoever grants, suspends or issues is active before that commit; tokens and sessions
belong to active principals, end once, never before their time as expired, and in the first commit of the core after it; there is
always an admin once there was one.
"""

from collections import Counter
from typing import NamedTuple

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

WRITER = "access"


class _Item(NamedTuple):
    """A token or a session in force."""

    principal: str
    expires_ns: int


class AccessBooks:
    """Books of principals, admins, tokens and sessions."""

    def __init__(self) -> None:
        #: {principal: True if it is active}
        self.active: dict[str, bool] = {}
        #: Tokens and sessions in force, which never share an id in a simulated world.
        self.items: dict[str, _Item] = {}
        #: Those that the commit at hand has ended: two commands of one commit may both end one.
        self.ended: set[str] = set()
        #: {principal: sources of its grant as admin}
        self.admins: dict[str, set[str]] = {}
        #: {command: sequence of the commit that answered it}
        self.answered: dict[str, int] = {}
        #: {type: events}
        self.counts: Counter[str] = Counter()

    def take(self, sequence: int, commit: Commit) -> str:
        """Book a commit. Returns a description of the first error, "" if there is none."""
        if commit.writer != WRITER:
            return ""
        before, had_admin = dict(self.active), self._has_admin()
        self.ended.clear()
        for event in commit.events:
            self.counts[type(event).__name__] += 1
            wrong = self._answer(event.cause, sequence) or self._by(event, before) or self._take(event, commit.at_ns)
            if wrong:
                return f"{type(event).__name__}: {wrong}"
        if had_admin and not self._has_admin():
            return "the last admin is gone"
        if all(isinstance(event, ev.AccessClockStepped) for event in commit.events):
            return ""  # the shell's own record, in which the core has no part; the core decides next, at the same time
        overdue = sorted(name for name, item in self.items.items() if item.expires_ns <= commit.at_ns)
        return f"expired before {commit.at_ns} and still in force: {overdue}" if overdue else ""

    def _answer(self, cause: str, sequence: int) -> str:
        if not cause.startswith("cmd:"):
            return ""
        first = self.answered.setdefault(cause, sequence)
        return "" if first == sequence else f"I3: {cause} was answered at sequence {first} already"

    def _by(self, event: ev.Event, before: dict[str, bool]) -> str:
        by = getattr(event, "by", "")
        return "" if not by or before.get(by, False) else f"by {by}, who was not active before the commit"

    def _take(self, event: ev.Event, at_ns: int) -> str:
        match event:
            case ev.PrincipalAdmitted():
                self.active[event.principal] = True
            case ev.PrincipalSuspended():
                self.active[event.principal] = False
                for name in [name for name, item in self.items.items() if item.principal == event.principal]:
                    del self.items[name]
                    self.ended.add(name)
                if event.forgotten:
                    self.admins.pop(event.principal, None)
            case ev.RoleGranted() if event.role == "admin":
                self.admins.setdefault(event.subject, set()).add(event.source)
            case ev.RoleRevoked() if event.role == "admin":
                self.admins.get(event.subject, set()).discard(event.source)
            case ev.TokenIssued():
                return self._begin(event.token, event.principal, event.expires_ns)
            case ev.SessionOpened():
                return self._begin(event.session, event.principal, event.expires_ns)
            case ev.TokenRevoked():
                return self._end(event.token, event.reason, at_ns)
            case ev.SessionEnded():
                return self._end(event.session, event.reason, at_ns)
            case _:
                pass
        return ""

    def _begin(self, name: str, principal: str, expires_ns: int) -> str:
        if name in self.items:
            return f"{name} is in force already"
        self.items[name] = _Item(principal, expires_ns)
        return "" if self.active.get(principal, False) else f"{name} is for {principal}, who is not active"

    def _end(self, name: str, reason: str, at_ns: int) -> str:
        item = self.items.pop(name, None)
        if item is None:
            return "" if name in self.ended and reason != "expired" else f"{name} is not in force"
        self.ended.add(name)
        is_early = reason == "expired" and at_ns < item.expires_ns
        return f"{name} expired at {at_ns}, {item.expires_ns - at_ns} ns early" if is_early else ""

    def _has_admin(self) -> bool:
        return any(sources and self.active.get(name, False) for name, sources in self.admins.items())
