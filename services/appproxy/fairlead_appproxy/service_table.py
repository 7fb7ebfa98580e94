"""What a proxy knows for the moment of services, their replicas and keys: all of it can be asked for again. Pure.

Bounds of a key count at each proxy by itself. Start at `ServiceTable.admit` and `KnownService.least_busy`.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count

from fairlead_appproxy.app_runs import AppRun, Visitor
from fairlead_schemas.wire.app_sessions import AppEntry, ConnectReplica, ReplicaRoute, ServiceEntry

#: Keys that one proxy remembers.
KEYS_MAX = 20_000
#: A key, or a service, that nobody has used for so long is forgotten.
UNUSED_S = 60.0
#: A replica that could not be connected to gets no request for so long, while others do.
AVOID_S = 2.0
#: The load that is told is the largest of so long: a number that changes with every request would be an event for every request.
WINDOW_S = 5.0
MINUTE_S = 60.0

_uses = count()


class RoutedReplica(Visitor):
    """One replica, as an app that no person enters."""

    sets_cookies = False

    def __init__(self, service: str, route: ReplicaRoute) -> None:
        entry = AppEntry(job=route.job, attempt=route.attempt, profile=route.profile)
        super().__init__("", AppRun(f"replica/{route.job}/{route.attempt}", entry), entry)
        self.service = service
        #: Until when it gets no request, and the order of its last one.
        self.avoid_until, self.used = 0.0, 0

    def connect_question(self, address: str, ticket: str) -> ConnectReplica:
        """Return the question that has the replica's node dial out to this proxy."""
        entry = self.entry
        return ConnectReplica(
            service=self.service, job=entry.job, attempt=entry.attempt, address=address, ticket=ticket
        )


class KnownService:
    """One service: its replicas, and its requests in flight."""

    def __init__(self, name: str, now: float) -> None:
        self.name, self.used_at = name, now
        self.replicas: dict[tuple[str, int], RoutedReplica] = {}
        #: Requests in flight, and those of them that wait for a replica.
        self.in_flight = self.waiting = 0
        #: Set when there are other replicas.
        self.changed = asyncio.Event()
        self._window: int = 0
        self._peak = self._peak_before = 0

    def least_busy(self, now: float) -> RoutedReplica | None:
        """Return the replica with the fewest requests, of several the one whose last is the longest ago; None where none takes any."""
        free = [each for each in self.replicas.values() if now >= each.avoid_until]
        return min(free, key=lambda each: (each.run.open, each.used), default=None)

    def use(self, replica: RoutedReplica) -> None:
        """Note a request to a replica."""
        replica.run.open += 1
        replica.used = next(_uses)

    def begin(self, now: float) -> None:
        """Note a request."""
        self.in_flight += 1
        self.used_at = now
        self._turn(now)
        self._peak = max(self._peak, self.in_flight)

    def end(self, now: float) -> None:
        """Note the end of a request."""
        self._turn(now)
        self.in_flight -= 1
        self.used_at = now

    def load(self, now: float) -> int:
        """Return the most requests in flight in this window and the one before."""
        self._turn(now)
        return max(self._peak, self._peak_before)

    def _turn(self, now: float) -> None:
        window = int(now / WINDOW_S)
        if window != self._window:
            self._peak_before = self._peak if window == self._window + 1 else self.in_flight
            self._window, self._peak = window, self.in_flight

    def set_replicas(self, routes: Iterable[ReplicaRoute]) -> None:
        """Take these replicas; requests that others have stay with them to their end."""
        wanted = {(each.job, each.attempt): each for each in routes}
        for gone in self.replicas.keys() - wanted.keys():
            del self.replicas[gone]
        for key, route in wanted.items():
            if key not in self.replicas:
                self.replicas[key] = RoutedReplica(self.name, route)
        if self.replicas:
            self.changed.set()
            self.changed = asyncio.Event()


class KnownKey:
    """Key that is good, with what it has used of its bounds."""

    def __init__(self, digest: str, entry: ServiceEntry, now: float) -> None:
        self.digest, self.entry, self.used_at = digest, entry, now
        self.in_flight = 0
        #: Requests that it may send at once; they come again evenly.
        self._left, self._at = float(entry.per_minute), now
        #: What cuts each of its requests.
        self.cuts: dict[object, Callable[[], None]] = {}

    def begin(self, now: float) -> tuple[str, float]:
        """Count a request; return ("", 0), or why it may not be sent, and seconds after which it may."""
        self.used_at = now
        if self.entry.in_flight and self.in_flight >= self.entry.in_flight:
            return f"this key has {self.entry.in_flight} requests in flight, as many as it may have", 1.0
        per_minute = self.entry.per_minute
        if per_minute:
            self._left = min(float(per_minute), self._left + (now - self._at) * per_minute / MINUTE_S)
            self._at = now
            if self._left < 1:
                return f"this key may send {per_minute} requests a minute", (1 - self._left) * MINUTE_S / per_minute
            self._left -= 1
        self.in_flight += 1
        return "", 0.0


class ServiceTable:
    """Services by name, and keys by digest."""

    def __init__(self) -> None:
        self.services: dict[str, KnownService] = {}
        self.keys: dict[str, KnownKey] = {}

    def admit(self, digest: str, entry: ServiceEntry, now: float) -> KnownKey:
        """Note that a key is good."""
        if len(self.keys) >= KEYS_MAX:
            self._forget(lambda key: not key.in_flight)
        service = self.services.get(entry.service)
        if service is None:
            service = self.services[entry.service] = KnownService(entry.service, now)
        service.set_replicas(entry.replicas)
        found = self.keys[digest] = KnownKey(digest, entry, now)
        return found

    def has_replica(self, label: str) -> bool:
        """Return whether a label is of a replica that takes requests."""
        return any(each.run.label == label for service in self.services.values() for each in service.replicas.values())

    def end(self, digest: str) -> None:
        """Forget a key, and cut its requests."""
        found = self.keys.pop(digest, None)
        for cut in [*found.cuts.values()] if found is not None else ():
            cut()

    def sweep(self, now: float) -> None:
        """Forget what is not used; a service later, so that its load is reported as none first."""
        self._forget(lambda key: not key.in_flight and now - key.used_at > UNUSED_S)
        used = {key.entry.service for key in self.keys.values()}
        for name, service in [*self.services.items()]:
            if name not in used and not service.in_flight and now - service.used_at > UNUSED_S + 2 * WINDOW_S:
                del self.services[name]

    def _forget(self, is_unused: Callable[[KnownKey], bool]) -> None:
        for digest, key in [*self.keys.items()]:
            if is_unused(key):
                del self.keys[digest]
