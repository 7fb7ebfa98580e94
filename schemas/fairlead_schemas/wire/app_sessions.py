"""What the app proxy and the gateways say to each other about applications: entering one, finding who has entered, and connecting it.

The proxy keeps nothing that it could not ask for again, so any proxy serves any app, and one that starts goes on. It knows secrets as
digests alone, but for the ticket of a connection that it makes itself. All questions go to one subject, as a union. Start at `EnterApp`.
"""

import msgspec

#: A code is good for so long, and one entry for so long.
CODE_S = 30.0
ENTRY_S = 24 * 3600.0
#: Entries in one question.
ENTRIES_MAX = 500


class _Question(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", omit_defaults=True):
    """Question of a proxy."""


class EnterApp(_Question, tag="enter", frozen=True, kw_only=True):
    """Somebody came to a label with a code: let them in under a cookie. Both secrets as digests."""

    label: str
    code: str
    cookie: str


class FindEntry(_Question, tag="find", frozen=True, kw_only=True):
    """Somebody came to a label with a cookie ("": with none) that this proxy does not know."""

    label: str
    cookie: str = ""


class ConnectApp(_Question, tag="connect", frozen=True, kw_only=True):
    """Have the node of the app dial out to this proxy, at an address and with a ticket, for somebody who has entered."""

    label: str
    cookie: str
    address: str
    ticket: str


class RenewEntries(_Question, tag="renew", frozen=True, kw_only=True):
    """Which of these entries, {digest of a cookie: its label}, must end? `active`: {label: when a person last acted there, Unix ns}."""

    entries: dict[str, str]
    active: dict[str, int] = {}


class FindService(_Question, tag="service", frozen=True, kw_only=True):
    """Somebody came with a key (its digest) to the host of a service; `label` "": to the proxy's own address."""

    key: str
    label: str = ""


class ConnectReplica(_Question, tag="replica", frozen=True, kw_only=True):
    """Have the node of a replica dial out to this proxy, at an address and with a ticket."""

    service: str
    job: str
    attempt: int
    address: str
    ticket: str


class RenewServices(_Question, tag="renew-services", frozen=True, kw_only=True):
    """Which replicas do these services have now, {service: requests in flight at this proxy}, and which keys must end, {digest: service}?"""

    proxy: str
    loads: dict[str, int]
    keys: dict[str, str] = {}


AppQuestion = EnterApp | FindEntry | ConnectApp | RenewEntries | FindService | ConnectReplica | RenewServices


class AppEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person who may use an app now."""

    job: str
    attempt: int
    profile: str
    #: Beginnings of paths that its job file counts as nobody's.
    background: list[str] = []
    #: Opaque id of the person; "" without sign-on.
    principal: str = ""


class AppAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to the first three questions: the entry, or a status of HTTP with the reason in words. `token`: the app's own secret."""

    entry: AppEntry | None = None
    status: int = 0
    words: str = ""
    token: str = ""


class EntriesEnded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """{digest of a cookie: (status, why)} of those that must end. `behind`: the gateway cannot know, since it does not see the log's end."""

    ended: dict[str, tuple[int, str]] = {}
    behind: bool = False


class ReplicaRoute(msgspec.Struct, frozen=True, array_like=True):
    """Replica that takes requests."""

    job: str
    attempt: int
    profile: str


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Key that is good now: the id of the key, and its bounds."""

    service: str
    label: str
    key: str
    per_minute: int = 0
    in_flight: int = 0
    replicas: list[ReplicaRoute] = []


class ServiceAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer to FindService: the entry, or a status of HTTP with the reason in words."""

    entry: ServiceEntry | None = None
    status: int = 0
    words: str = ""


class ServicesRenewed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """{service: its replicas}, without those that are there no more; and {digest of a key: (status, why)} of those that must end. `behind`: the
    gateway cannot know.
    """

    replicas: dict[str, list[ReplicaRoute]] = {}
    ended: dict[str, tuple[int, str]] = {}
    behind: bool = False


class AppAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a proxy is reached: its own address; and the origin below which each app has one, such as "https://apps.example.org" ("": none, so
    that apps are carried to <label>.localhost).
    """

    address: str
    apps: str = ""


class RunPresence(msgspec.Struct, frozen=True, kw_only=True):
    """Message of a gateway to a node: when a person last acted in the application of a run (Unix ns)."""

    job: str
    attempt: int
    rank: int
    at_ns: int
