"""What a browser's request must be to reach an app: its host, its origin, and the page that it comes from. Pure.

Every app has a host of its own, and cookies do not tell pages of neighbours from its own: hosts below one domain are one site to a browser. So
requests that another page has made are refused here, whatever their cookie. Start at `AppHosts.of`, then `refusal`.
"""

import re
from typing import NamedTuple

from fairlead_appproxy.head import CarriedRequest

#: Names below it lead to the browser's own machine, where `fairlead open` carries an app (RFC 6761).
LOCAL = "localhost"
_HOST = re.compile(r"([a-z0-9-]{1,63})\.([a-z0-9.-]{1,200})(:[0-9]{1,5})?")
_READS = frozenset([b"GET", b"HEAD", b"OPTIONS"])
#: Of a page within another, by which a click can be stolen.
_WITHIN = frozenset([b"iframe", b"frame", b"embed", b"object", b"fencedframe"])


class AppHost(NamedTuple):
    """Host of one app, and the origin of its pages."""

    label: str
    #: As `Host` has it, in lower case.
    host: str
    scheme: str

    @property
    def origin(self) -> str:
        """The origin of its own pages."""
        return f"{self.scheme}://{self.host}"

    @property
    def is_secure(self) -> bool:
        """True where cookies can be bound to the host by their name."""
        return self.scheme == "https"


class AppHosts:
    """Hosts of apps: those below a domain, and those below localhost."""

    def __init__(self, apps: str = "") -> None:
        """`apps`: "https://apps.example.org", the origin below which each app has one; "": none."""
        self._scheme, _, place = apps.lower().partition("://")
        self._domain, colon, port = place.partition(":")
        self._port = colon + port

    def of(self, host: bytes) -> AppHost | None:
        """Return the app's host that a `Host` names; None for a name that is none, such as one that leads here by another's doing."""
        found = _HOST.fullmatch(host.decode("latin-1").lower())
        if found is None:
            return None
        label, domain, port = found[1], found[2], found[3] or ""
        if domain == LOCAL:
            return AppHost(label, f"{label}.{domain}{port}", "http")
        if self._domain and domain == self._domain and port == self._port:
            return AppHost(label, f"{label}.{domain}{port}", self._scheme)
        return None


def refusal(head: CarriedRequest, host: AppHost) -> str:
    """Return why a request with the cookie of an app may not reach it, "" where it may."""
    origins, sites = head.values(b"origin"), head.values(b"sec-fetch-site")
    if len(origins) > 1 or len(sites) > 1:
        return "expected one Origin and one Sec-Fetch-Site at most"
    origin, site = (origins or [b""])[0], (sites or [b""])[0]
    is_own = origin.decode("latin-1").lower() == host.origin
    if head.is_websocket:
        return "" if is_own else "a WebSocket is opened by a page of the application itself only"
    if head.method not in _READS:
        if is_own or (not origin and site == b"same-origin"):
            return ""
        return "a change is taken from a page of the application itself only"
    if origin and not is_own:
        return "another page asks for this"
    if site in (b"same-site", b"cross-site") and not _is_opened(head):
        return "another page asks for this"
    return ""


def _is_opened(head: CarriedRequest) -> bool:
    """Return whether a person opens a page, by a link of another site: as a page of its own, not within another."""
    kind = head.values(b"sec-fetch-dest")
    is_whole = head.values(b"sec-fetch-mode") == [b"navigate"] and not _WITHIN.intersection(kind)
    return head.method == b"GET" and is_whole


def is_navigation(head: CarriedRequest) -> bool:
    """Return whether a browser opens a page by this request, and shows the answer to a person."""
    return head.values(b"sec-fetch-mode") == [b"navigate"] or (
        not head.values(b"sec-fetch-mode") and any(b"text/html" in value for value in head.values(b"accept"))
    )
