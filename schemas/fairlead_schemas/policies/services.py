"""Services: programs that answer requests until they are stopped, as replicas behind one name. Their rules in integers, the bounds of these,
and the name of their host. Pure.

A service has a number of replicas that is fixed, or between a minimum and a maximum by the requests in flight. Each replica is a job.
"""

import base64
import hashlib
import re

import msgspec

from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.units.validation import FieldError

SERVICES_MAX = 2000
REPLICAS_MAX = 100
#: Of requests in flight for which one replica is wanted.
REQUESTS_MAX = 10_000
#: Between the moment from which a replica gets no new request and its end.
DRAIN_NS, DRAIN_NS_MAX = 5 * SECOND_NS, HOUR_NS
#: For so long fewer replicas must be enough before one is ended.
CALM_NS, CALM_NS_MAX = 300 * SECOND_NS, 24 * HOUR_NS
KEYS_OF_SERVICE_MAX = 100
NAME_CHARS_MAX = 40
PER_MINUTE_MAX = 1_000_000
IN_FLIGHT_MAX = 10_000
#: Of a proxy that does not repeat it, the load counts for so long. A gateway repeats it every `LOAD_AGAIN_NS`.
LOAD_NS, LOAD_AGAIN_NS = 180 * SECOND_NS, 60 * SECOND_NS
PROXIES_MAX = 100

_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?\Z", re.ASCII)
_LABEL = re.compile(r"svc-([a-z](?:[a-z0-9-]{0,38}[a-z0-9])?)-([a-z2-7]{8})\Z", re.ASCII)
NAME_WORDS = f"1 to {NAME_CHARS_MAX} of a-z 0-9 -, a letter first and no - last"


class ServiceRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How many replicas a service has, and how they are replaced."""

    replicas_min: int = 1
    replicas_max: int = 1
    #: Requests in flight for which one replica is wanted, between the two; 0: as many as `replicas_min`.
    requests: int = 0
    #: While replicas are replaced: how many there may be beyond the wanted number, and how many fewer may be ready.
    surge: int = 1
    unavailable: int = 0
    drain_ns: int = DRAIN_NS
    calm_ns: int = CALM_NS

    @property
    def is_fixed(self) -> bool:
        """True where the number of replicas does not follow the load."""
        return self.replicas_min == self.replicas_max

    def wanted(self, in_flight: int) -> int:
        """Return how many replicas so many requests in flight want."""
        if not self.requests:
            return self.replicas_min
        return min(self.replicas_max, max(self.replicas_min, -(-in_flight // self.requests)))


def faults_of(rules: ServiceRules) -> list[FieldError]:
    """Return everything that is wrong with the rules of a service, by the fields of a job file."""
    found: list[FieldError] = []

    def expect(ok: bool, field: str, message: str) -> None:
        if not ok:
            found.append(FieldError(field=f"service.{field}", message=message))

    low, high = rules.replicas_min, rules.replicas_max
    expect(
        0 <= low <= high <= REPLICAS_MAX, "replicas", f"expected 0 to {REPLICAS_MAX} and min <= max, found {low}-{high}"
    )
    expect(0 <= rules.requests <= REQUESTS_MAX, "requests", f"expected 1 to {REQUESTS_MAX}, found {rules.requests}")
    expect(
        bool(rules.requests) or rules.is_fixed,
        "requests",
        "expected the number of requests in flight for which one replica is wanted, with replicas between two numbers",
    )
    expect(0 <= rules.surge <= REPLICAS_MAX, "surge", f"expected 0 to {REPLICAS_MAX}, found {rules.surge}")
    expect(
        0 <= rules.unavailable <= REPLICAS_MAX,
        "unavailable",
        f"expected 0 to {REPLICAS_MAX}, found {rules.unavailable}",
    )
    expect(
        rules.surge + rules.unavailable > 0,
        "surge",
        "expected surge or unavailable above 0: no replica could be replaced without another one or a gap",
    )
    expect(0 <= rules.drain_ns <= DRAIN_NS_MAX, "drain", "expected 0 to 1h")
    expect(0 <= rules.calm_ns <= CALM_NS_MAX, "calm", "expected 0 to 24h")
    return found


def is_service_name(text: str) -> bool:
    """Return whether a text may name a service: it is a part of a host name."""
    return _NAME.match(text) is not None


def label_of_service(name: str, queue: str) -> str:
    """Return the first label of the host name of a service. It belongs to the name in this queue: a service of the same name in another
    queue has another host, so that no user of that queue takes the host over.
    """
    salt = base64.b32encode(hashlib.sha256(f"service\0{queue}\0{name}".encode()).digest()).decode().lower()[:8]
    return f"svc-{name}-{salt}"


def parse_service_label(label: str) -> str:
    """Return the name of the service of a label, "" for a label of none."""
    found = _LABEL.match(label)
    return found[1] if found is not None else ""
