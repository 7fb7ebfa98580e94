"""What a proxy knows for the moment of apps and of who has entered them: all of it can be asked for again. Pure.

Start at `AppTable.admit`.
"""

from collections.abc import Callable, Iterator

from fairlead_appproxy.presence import Presence
from fairlead_schemas.policies.apps import OWN, PROFILES
from fairlead_schemas.wire.app_sessions import AppEntry, ConnectApp, ConnectReplica

#: Entries that one proxy remembers; the oldest is asked for again when its cookie comes.
ENTRIES_MAX = 20_000
#: Sockets and requests of one app at a time.
OPEN_OF_APP_MAX = 500
#: A cookie that nobody knows is asked for again after it.
UNKNOWN_S = 5.0
UNKNOWN_MAX = 10_000


class AppRun:
    """One app."""

    def __init__(self, label: str, entry: AppEntry) -> None:
        self.label, self.profile = label, PROFILES.get(entry.profile, PROFILES[OWN])
        self.presence = Presence(self.profile, entry.background)
        #: Secret of the app, once it was connected to.
        self.token = ""
        self.open = 0


class Visitor:
    """Somebody who has entered an app: `cookie` is the digest of theirs."""

    def __init__(self, cookie: str, run: AppRun, entry: AppEntry) -> None:
        self.cookie, self.run, self.entry = cookie, run, entry
        #: What cuts each open connection of theirs.
        self.cuts: dict[object, Callable[[], None]] = {}

    #: Whether the app may set cookies in their browser.
    sets_cookies = True

    def connect_question(self, address: str, ticket: str) -> ConnectApp | ConnectReplica:
        """Return the question that has the app's node dial out to this proxy."""
        return ConnectApp(label=self.run.label, cookie=self.cookie, address=address, ticket=ticket)


class AppTable:
    """Apps by label, and entries by label and digest of the cookie."""

    def __init__(self) -> None:
        self.runs: dict[str, AppRun] = {}
        self.entries: dict[tuple[str, str], Visitor] = {}
        #: {(label, digest): (until when it is known to be none, status, words)}
        self._unknown: dict[tuple[str, str], tuple[float, int, str]] = {}

    def admit(self, label: str, cookie: str, entry: AppEntry) -> Visitor:
        """Note that somebody may use an app."""
        self._unknown.pop((label, cookie), None)
        if len(self.entries) >= ENTRIES_MAX:
            for key in [key for key, each in self.entries.items() if not each.cuts][: ENTRIES_MAX // 10]:
                self._forget(key)
        run = self.runs.get(label)
        if run is None:
            run = self.runs[label] = AppRun(label, entry)
        found = self.entries[label, cookie] = Visitor(cookie, run, entry)
        return found

    def refused(self, label: str, cookie: str, now: float) -> tuple[int, str] | None:
        """Return (status, words) of a cookie that was found to be none a moment ago."""
        found = self._unknown.get((label, cookie))
        return found[1:] if found is not None and now < found[0] else None

    def refuse(self, label: str, cookie: str, now: float, status: int, words: str) -> None:
        """Note that a cookie is none."""
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[label, cookie] = now + UNKNOWN_S, status, words

    def end(self, cookie: str, label: str) -> None:
        """Forget an entry, and cut what is open of it."""
        found = self.entries.get((label, cookie))
        if found is not None:
            self._forget((label, cookie))
            for cut in [*found.cuts.values()]:
                cut()

    def _forget(self, key: tuple[str, str]) -> None:
        del self.entries[key]
        if not any(label == key[0] for label, _ in self.entries):
            del self.runs[key[0]]

    def batches(self, size: int) -> Iterator[dict[str, str]]:
        """Yield all entries, {digest: label}, some at a time."""
        everything = [(cookie, label) for label, cookie in self.entries]
        for at in range(0, len(everything), size):
            yield dict(everything[at : at + size])

    def active(self, since: float) -> dict[str, float]:
        """Return {label: when a person last acted there} of those where somebody has since a time."""
        return {
            label: run.presence.last
            for label, run in self.runs.items()
            if run.presence.last is not None and run.presence.last >= since
        }
