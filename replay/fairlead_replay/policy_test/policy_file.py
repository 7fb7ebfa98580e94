"""File of a policy test, read with every mistake named. Pure: files that it names are read by its caller.

log: {load: day.load.jsonl.gz}           # or {export: DIR} or {archive: DIR}, with from and to
policy: {queues: queues.yaml}            # a queue file; or {change: …}, {sequencer: mine.py:Smallest}
against: recorded                        # or a policy as above
seeds: 8                                 # or exact: true
fidelity: B
expect:
  - {metric: wait_p95, queue: research, worse_by_at_most: 10%}
  - {metric: preemptions, at_most: 40}
goldens: day.golden.json
"""

import re
from typing import Any, Literal, NamedTuple

import msgspec

from fairlead_replay.policy_test.metrics import METRICS, SIZE_NAMES, MeasuredJobs, PlayMetric, metric_named
from fairlead_replay.whatif.fidelity import Grade
from fairlead_replay.whatif.study import SEEDS_MAX
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.units.validation import ErrorCollector, InvalidDocument, joined

SEEDS = 8
#: Pairs of plays below which no difference can be told from chance.
PAIRS_MIN = 3
EXPECTATIONS_MAX = 200

type Bound = Literal["at_most", "at_least", "equals", "worse_by_at_most", "better_by_at_least"]
BOUNDS: tuple[Bound, ...] = ("at_most", "at_least", "equals", "worse_by_at_most", "better_by_at_least")
#: Bounds of the difference to what is compared with.
RELATIVE = ("worse_by_at_most", "better_by_at_least")
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?%\Z")
_GPU_HOURS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?GPUh\Z")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?\Z")
_SHA256 = re.compile(r"(sha256:)?([0-9a-f]{64})\Z")


class _Words(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LogWords(_Words, frozen=True, kw_only=True):
    """Where the log is."""

    load: str = ""
    export: str = ""
    archive: str = ""
    from_: str = msgspec.field(default="", name="from")
    to: str = ""
    sha256: str = ""


class PolicyWords(_Words, frozen=True, kw_only=True):
    """PolicySource under test."""

    queues: str = ""
    sequencer: str = ""
    change: str | dict[str, Any] = ""


class ExpectationWords(_Words, frozen=True, kw_only=True):
    """Expectation."""

    metric: str
    queue: str = ""
    user: str = ""
    pool: str = ""
    size: str = ""
    longer_than: str | int = ""
    at_most: str | int | float | None = None
    at_least: str | int | float | None = None
    equals: str | int | float | None = None
    worse_by_at_most: str | int | float | None = None
    better_by_at_least: str | int | float | None = None


class PolicyTestWords(_Words, frozen=True, kw_only=True):
    """Policy test file."""

    log: dict[str, Any]
    policy: str | dict[str, Any] = "recorded"
    against: str | dict[str, Any] = "recorded"
    seeds: int = SEEDS
    exact: bool = False
    fidelity: str = "B"
    expect: list[dict[str, Any]] = []
    goldens: str = ""


class InvalidPolicyTest(InvalidDocument):
    """A policy test file was refused."""


class LogSource(NamedTuple):
    """Where the log is: `path` of a load file, an export or an archive; bounds as written; its digest, if it is pinned."""

    kind: str
    path: str
    from_: str = ""
    to: str = ""
    sha256: str = ""


class PolicySource(NamedTuple):
    """PolicySource under test, by the files that have it; all empty: as recorded."""

    queues: str = ""
    sequencer: str = ""
    #: Path of a change, or the change itself.
    change: str | dict[str, Any] = ""

    @property
    def is_recorded(self) -> bool:
        """True for the recorded policy."""
        return not (self.queues or self.sequencer or self.change)


class Threshold(NamedTuple):
    """Threshold: a value in the metric's own unit, or a part (0.1: 10 %) of what is compared with."""

    value: float
    is_part: bool
    words: str


class Expectation(NamedTuple):
    """Something that is to hold."""

    metric: PlayMetric
    jobs: MeasuredJobs
    bound: Bound
    threshold: Threshold
    longer_than_ns: int = 0
    longer_than: str = ""
    #: Its place in the file: "expect[2]".
    at: str = ""

    @property
    def subject(self) -> str:
        """What it is of: "wait_p95 of queue research"."""
        limit = f" waiting longer than {self.longer_than}" if self.longer_than else ""
        return f"{self.metric.name} of {'all queues' if self.metric.is_of_all else self.jobs}{limit}"

    @property
    def demand(self) -> str:
        """What is expected: "worse by at most 10%"."""
        return f"{self.bound.replace('_', ' ')} {self.threshold.words}"


class PolicyTest(NamedTuple):
    """Policy test as read."""

    log: LogSource
    policy: PolicySource
    against: PolicySource
    seeds: int
    fidelity: Grade
    expectations: tuple[Expectation, ...]
    goldens: str


def read_policy_test(value: Any) -> PolicyTest:
    """Read a policy test of plain values. Raises InvalidPolicyTest with every mistake."""
    reading = ErrorCollector()
    fields = reading.fields({} if value is None else value, PolicyTestWords, "")
    exact = fields.get("exact", False)
    seeds = 0 if exact else SEEDS
    if "seeds" in fields:
        seeds = reading.whole(fields["seeds"], "seeds", 0, SEEDS_MAX)
        if exact:
            reading.wrong("exact", "expected exact or seeds, found both: an exact play is not shaken; leave out one")
        elif 0 < seeds < PAIRS_MIN:
            reading.wrong(
                "seeds", f"expected 0 or at least {PAIRS_MIN}, found {seeds}: fewer tell no difference from chance"
            )
    fidelity = fields.get("fidelity", "B")
    if fidelity not in ("A", "B", "C"):
        reading.wrong("fidelity", f'expected A, B, or C for any, found "{fidelity}"')
    log = _log(reading, fields.get("log", {})) if "log" in fields else LogSource("", "")
    policy, against = (_policy(reading, fields.get(at, "recorded"), at) for at in ("policy", "against"))
    words = fields.get("expect", [])
    if len(words) > EXPECTATIONS_MAX:
        reading.wrong("expect", f"expected at most {EXPECTATIONS_MAX}, found {len(words)}; split the file")
        words = []
    found = [_expectation(reading, each, f"expect[{index}]") for index, each in enumerate(words)]
    if not found and not fields.get("goldens") and not reading.errors:
        reading.wrong("expect", "expected expectations or goldens, found neither: nothing would be tested")
    reading.refuse(InvalidPolicyTest)
    expectations = tuple(each for each in found if each is not None)
    return PolicyTest(log, policy, against, seeds, fidelity, expectations, fields.get("goldens", ""))


def _log(reading: ErrorCollector, words: Any) -> LogSource:
    known = {"load": str, "export": str, "archive": str}
    fields = reading.fields(words, LogWords, "log")
    given = [kind for kind in known if fields.get(kind)]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        reading.wrong("log", f"expected one of load, export and archive with a path, found {found}")
        return LogSource("", "")
    bounds = fields.get("from", ""), fields.get("to", "")
    if given == ["load"] and any(bounds):
        reading.wrong("log", "expected neither from nor to with a load file, which is one window; export another")
    digest = fields.get("sha256", "")
    pinned = _SHA256.match(digest)
    if digest and pinned is None:
        reading.wrong("log.sha256", "expected 64 hex digits, as `fairlead audit export --load` prints them")
    return LogSource(given[0], fields[given[0]], *bounds, pinned[2] if pinned is not None else "")


def _policy(reading: ErrorCollector, words: Any, at: str) -> PolicySource:
    if isinstance(words, str):
        if words != "recorded":
            reading.wrong(at, f'expected recorded, or a map with queues, sequencer or change, found "{words[:80]}"')
        return PolicySource()
    fields = reading.fields(words, PolicyWords, at)
    if fields.get("change") and (fields.get("queues") or fields.get("sequencer")):
        reading.wrong(at, "expected change alone, found it with queues or sequencer: a change names both itself")
    if not any(fields.values()):
        reading.wrong(at, "expected queues, sequencer or change, found none of them")
    return PolicySource(fields.get("queues", ""), fields.get("sequencer", ""), fields.get("change", ""))


def _expectation(reading: ErrorCollector, words: Any, at: str) -> Expectation | None:
    before = len(reading.errors)
    fields = reading.fields(words, ExpectationWords, at)
    name = fields.get("metric", "")
    metric = metric_named(name)
    if metric is None:
        if "metric" in fields:
            known = ", ".join(METRICS)
            hint = did_you_mean(name, [*METRICS, "wait_p50", "wait_p95"])
            reading.wrong(joined(at, "metric"), f'expected one of {known} (NN: 1 to 99), found "{name[:80]}"{hint}')
        return None
    jobs = _jobs(reading, fields, metric, at)
    longer_than_ns = _longer_than(reading, fields, metric, at)
    bounds: list[Bound] = [bound for bound in BOUNDS if fields.get(bound) is not None]
    if len(bounds) != 1:
        reading.wrong(at, f"expected one of {', '.join(BOUNDS)}, found {' and '.join(bounds) or 'none'}")
        return None
    bound = bounds[0]
    if bound in RELATIVE and not metric.worse:
        reading.wrong(
            joined(at, bound), f"more {metric.name} is neither better nor worse; use at_most, at_least or equals"
        )
    threshold = _threshold(reading, fields[bound], metric, bound, joined(at, bound))
    if len(reading.errors) > before or threshold is None:
        return None
    return Expectation(metric, jobs, bound, threshold, longer_than_ns, str(fields.get("longer_than", "")), at)


def _jobs(reading: ErrorCollector, fields: dict[str, Any], metric: PlayMetric, at: str) -> MeasuredJobs:
    given = [MeasuredJobs(kind, fields[kind]) for kind in ("queue", "user", "pool", "size") if fields.get(kind)]
    if len(given) > 1:
        reading.wrong(
            at, f"expected one of queue, user, pool and size, found {' and '.join(each.kind for each in given)}"
        )
    if given and metric.is_of_all:
        reading.wrong(
            joined(at, given[0].kind),
            f"{metric.name} compares all queues with each other, and one has none; leave it out",
        )
    if given and given[0].kind == "size" and given[0].name not in SIZE_NAMES:
        reading.wrong(joined(at, "size"), f'expected one of {", ".join(SIZE_NAMES)}, found "{given[0].name[:80]}"')
    return given[0] if given else MeasuredJobs()


def _longer_than(reading: ErrorCollector, fields: dict[str, Any], metric: PlayMetric, at: str) -> int:
    text = fields.get("longer_than", "")
    if not metric.has_limit:
        if text != "":
            reading.wrong(joined(at, "longer_than"), f"{metric.name} takes none; starved_jobs does")
        return 0
    if text == "":
        reading.wrong(joined(at, "longer_than"), "expected the wait beyond which a job counts as starved, such as 4h")
        return 0
    value = _time(reading, text, joined(at, "longer_than"))
    return round(value * SECOND_NS)


def _threshold(reading: ErrorCollector, value: Any, metric: PlayMetric, bound: Bound, at: str) -> Threshold | None:
    percent = _PERCENT.match(value) if isinstance(value, str) else None
    if percent is not None:
        if bound not in RELATIVE:
            reading.wrong(
                at,
                f"expected {_form(metric)}, found {value}: a percentage needs worse_by_at_most or better_by_at_least",
            )
            return None
        return Threshold(float(percent[1]) / 100, True, value)
    match metric.unit:
        case "time":
            return Threshold(_time(reading, value, at), False, str(value))
        case "GPUh":
            found = _GPU_HOURS.match(value) if isinstance(value, str) else None
            if found is None:
                reading.wrong(at, f"expected {_form(metric)}, found {_shown(value)}")
                return None
            return Threshold(float(found[1]), False, value)
        case "count" if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return Threshold(float(value), False, str(value))
        case "number" if _NUMBER.match(str(value)):  # YAML's decimals come as text
            return Threshold(float(value), False, str(value))
        case _:
            reading.wrong(at, f"expected {_form(metric)}, found {_shown(value)}")
            return None


def _form(metric: PlayMetric) -> str:
    return {
        "time": "a time with its unit such as 90s or 30m",
        "GPUh": 'GPU-hours with their unit such as "12.5 GPUh"',
        "count": "a whole number of 0 or more",
        "number": "a number of 0 or more",
    }[metric.unit]


def _time(reading: ErrorCollector, value: Any, at: str) -> float:
    """Return seconds. A number without a unit is refused: nobody can see whether seconds or minutes were meant."""
    if not isinstance(value, str) or value.strip().isdecimal():
        reading.wrong(at, f"expected a time with its unit such as 90s or 30m, found {_shown(value)}")
        return 0.0
    try:
        return parse_duration(value) / SECOND_NS
    except QuantityError as error:
        reading.wrong(at, str(error))
        return 0.0


def _shown(value: Any) -> str:
    return f'"{value[:80]}"' if isinstance(value, str) else str(value)[:80]
