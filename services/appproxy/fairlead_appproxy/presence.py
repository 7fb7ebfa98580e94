"""Signs of a person in the traffic of an app: what a page does by itself is none. Pure.

A request counts unless it opens a page, is on the profile's list of background paths, or (in apps whose people act over sockets) changes
nothing. A frame of data from the client counts. What happens within SETTLE_S of the opening of a page or socket is the page's own: it loads, and
asks for its kernels. What is not known counts. Start at `Presence.request`.
"""

from collections.abc import Iterable

from fairlead_appproxy.browser_rules import is_navigation
from fairlead_appproxy.head import CarriedRequest
from fairlead_schemas.policies.apps import AppProfile

#: After a page or socket was opened.
SETTLE_S = 10.0
_READS = frozenset([b"GET", b"HEAD", b"OPTIONS"])
#: Parts of a page that a browser fetches for it.
_PARTS = frozenset(
    [b"script", b"style", b"image", b"font", b"manifest", b"worker", b"serviceworker", b"audio", b"video", b"track"]
)


class Presence:
    """When a person last acted in one app. Times are the caller's seconds."""

    def __init__(self, profile: AppProfile, background: Iterable[str] = ()) -> None:
        self._profile = profile
        self._background = tuple(each.encode() for each in (*profile.background, *background))
        self._settled_at = float("-inf")
        #: None: nobody has acted yet.
        self.last: float | None = None

    def request(self, head: CarriedRequest, now: float) -> bool:
        """Note a request; return whether it was a sign of a person."""
        if is_navigation(head):
            self._settled_at = now + SETTLE_S
        counts = now >= self._settled_at and not self._is_background(head)
        if counts:
            self.last = now
        return counts

    def _is_background(self, head: CarriedRequest) -> bool:
        if head.is_websocket or head.target.startswith(self._background):
            return True  # the opening of a socket is no act; its frames are
        if head.method not in _READS:
            return False
        return self._profile.reads_are_background or bool(_PARTS.intersection(head.values(b"sec-fetch-dest")))

    def frames(self, opened_at: float, now: float) -> bool:
        """Note data frames of a client on a socket that was opened at a time; return whether they were a sign of a person."""
        counts = now >= max(self._settled_at, opened_at + SETTLE_S)
        if counts:
            self.last = now
        return counts
