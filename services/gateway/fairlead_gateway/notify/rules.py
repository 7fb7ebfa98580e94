"""Rules of people, and the events that concern each of them. Pure.

A rule names kinds of events, scopes, and one destination. `concerns` says if an event is one of a rule's; if its owner may see the
event is judged when it is sent, by the rights of that moment (`delivery.py`). Places in the log are single integers here, so
that a cursor is one number: see `place_of`.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from fairlead_rights.access_list import Reach, Target, covers, reach_of
from fairlead_schemas.policies.notifications import EVENT_KINDS, KINDS_OF_WHOLE_ARRAYS, MINE, NotificationKind
from fairlead_schemas.policies.rights import parse_scope
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.commit import Envelope

#: Bits of a place that number the event within its commit. The last number stands for the whole commit.
_INDEX_BITS = 16
_WHOLE = (1 << _INDEX_BITS) - 1

type Channel = Literal["webhook", "mail"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Wish of a person to be notified, as it is stored. It never changes; a changed one is a new one."""

    id: str
    #: Principal; without sign-on the name that the sender gave.
    owner: str
    #: For people to tell rules apart.
    name: str = ""
    channel: Channel
    #: URL of a webhook. Mail: the address; "": the owner's own, as of each mail.
    to: str = ""
    kinds: tuple[NotificationKind, ...]
    #: MINE, or scopes in text form such as "queue:research".
    scopes: tuple[str, ...] = (MINE,)
    #: True: an array's elements count like jobs.
    elements: bool = False
    #: Key of a webhook's signatures, "whsec_" and base64.
    secret: str = ""
    made_ns: int = 0
    #: Log sequence up to which nothing is sent.
    after: int = 0

    def __repr__(self) -> str:
        """Name the rule without its secret, since logs show reprs."""
        return f"Rule({self.id})"


class Notice(msgspec.Struct, frozen=True):
    """Event of the log of a kind that rules can name."""

    place: int
    type: str
    kinds: tuple[NotificationKind, ...]
    at_ns: int
    writer: str
    #: The event as it is in the log.
    event: bytes
    cause: str = ""
    job: str = ""
    node: str = ""
    queue: str = ""
    pool: str = ""

    @property
    def id(self) -> str:
        """Id of the event: "<sequence>.<index>"."""
        return f"{self.place >> _INDEX_BITS}.{self.place & _WHOLE}"


class Facts(NamedTuple):
    """Thing that an event is about, for scopes and rights, and its name for people ("" for none)."""

    target: Target
    name: str = ""


def place_of(sequence: int, index: int | None = None) -> int:
    """Return the place of an event in the log; of the end of a commit without an index. Later places are greater."""
    return sequence << _INDEX_BITS | (_WHOLE if index is None else index)


def read_after(place: int) -> int:
    """Return the sequence after which a reader of the log starts, who has handled everything up to a place."""
    sequence = place >> _INDEX_BITS
    return sequence if place & _WHOLE == _WHOLE else max(0, sequence - 1)


def sequence_of(place: int) -> int:
    """Return the log sequence of a place."""
    return place >> _INDEX_BITS


class _Head(msgspec.Struct):
    type: str
    cause: str = ""
    job: str = ""
    node: str = ""
    queue: str = ""
    pool: str = ""
    #: Of a budget: 0 is the start of a new period.
    percent: int = 100


_head = msgspec.json.Decoder(_Head)


def notices_of(sequence: int, envelope: Envelope) -> Iterator[Notice]:
    """Yield the events of a commit that rules can name, in order."""
    for index, raw in enumerate(envelope.events):
        head = _head.decode(raw)
        kinds = EVENT_KINDS.get(head.type)
        if kinds is not None and head.percent > 0:
            about = (head.cause, head.job, head.node, head.queue, head.pool)
            place = place_of(sequence, index)
            yield Notice(place, head.type, kinds, envelope.at_ns, envelope.writer, bytes(raw), *about)


def concerns(rule: Rule, notice: Notice, facts: Facts) -> bool:
    """Return True if an event is of a rule's kinds and in its scopes."""
    kinds = set(notice.kinds).intersection(rule.kinds)
    if notice.job and not rule.elements and array_of(notice.job) is not None:
        kinds -= KINDS_OF_WHOLE_ARRAYS
    if not kinds:
        return False
    if MINE in rule.scopes and (not notice.job or facts.target.owner == rule.owner):
        return True
    reach = _reach(rule.scopes)
    return reach is not None and covers(reach, facts.target)


@lru_cache(4096)
def _reach(scopes: tuple[str, ...]) -> Reach | None:
    wide = [parse_scope(each) for each in scopes if each != MINE]
    return reach_of(wide) if wide else None


def is_wide(rule: Rule) -> bool:
    """Return True if a rule may be concerned by jobs of others."""
    return any(scope != MINE for scope in rule.scopes)


def pause_s(failures: int, first_s: float, most_s: float) -> float:
    """Return the seconds until the next attempt after so many failures in a row: doubled each time, up to a bound."""
    return min(first_s * 2.0 ** min(failures - 1, 30), most_s)


# ---------------------------------------------------------------------------------------- words

_NODE_WORDS = {
    "NodeLost": "is lost: silent for {silent_s} s",
    "NodeReturned": "is back",
    "NodeUnhealthy": "is unhealthy: {code} {reason}",
    "NodeRecovered": "has recovered from {code}",
    "NodeSuspected": "is suspected: different jobs failed fast there",
    "NodeCleared": "is suspected no more",
    "NodeQuarantined": "is in quarantine: {reason}",
    "NodeUnquarantined": "is out of quarantine",
    "GpuFaulted": "has a faulted GPU {gpu}: {code} {reason}",
    "GpuRestored": "has the GPU {gpu} back",
}
_JOB_WORDS = {
    "RunStarted": "has started (attempt {attempt})",
    "JobSucceeded": "succeeded",
    "JobCancelled": "was cancelled",
    "JobRequeued": "waits again, for attempt {attempt}: {reason}",
    "PreemptionStarted": "yields its GPUs to another job ({rule})",
    "JobIdle": "is idle by the {rule} policy of {scope}{follows}",
    "LeaseShrunk": "is asked back at {until} unless it is extended: idle by the {rule} policy of {scope}",
    "ReclaimRequested": "is asked back: idle by the {rule} policy of {scope}",
    "DeadlineMissed": "cannot end by its deadline any more",
}
#: Characters of a summary: names and messages are people's text.
SUMMARY_CHARS_MAX = 300


def summary(notice: Notice, facts: Facts, data: Mapping[str, Any]) -> str:
    """Return one line that says what happened. `data`: the event's fields as its reader may see them."""
    if notice.job:
        named = f" ({facts.name})" if facts.name else ""
        text = f"job {notice.job}{named} {_job_words(notice.type, data)}"
    elif notice.type == "BudgetReached":
        text = f"queue {notice.queue} has used {data.get('percent', '?')} % of its budget"
    elif notice.type == "BreakerTripped":
        text = f"nodes are left alone until a person resets the breaker: {data.get('kind', '')}"
    else:
        words = {**data, "silent_s": data.get("silent_ns", 0) // SECOND_NS}
        text = f"node {notice.node} {_filled(_NODE_WORDS[notice.type], words)}"
    return _one_line(text)[:SUMMARY_CHARS_MAX]


def _job_words(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "JobFailed":
        return f"failed: {_cause_of(data)}"
    words = dict(data)
    if at := data.get("reclaim_at_ns", 0):
        words["follows"] = f": {data.get('action', '')} at {rfc3339(at)}"
    if until := data.get("until_ns", 0):
        words["until"] = rfc3339(until)
    return _filled(_JOB_WORDS[kind], words)


def _cause_of(data: Mapping[str, Any]) -> str:
    if message := data.get("message"):
        return str(message)
    if (code := data.get("exit_code")) is not None:
        return f"exit code {code}"
    return f"signal {data['signal']}" if data.get("signal") else str(data.get("reason", ""))


class _Words(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


def _filled(pattern: str, words: Mapping[str, Any]) -> str:
    return pattern.format_map(_Words(words)).rstrip(": ")


def _one_line(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
