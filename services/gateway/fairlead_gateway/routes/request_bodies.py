"""Bodies of all requests but job, queue and policy files, and checks before a command is made from one.

A body of one of these types is decoded strictly: an unknown field is refused.

A command that cannot mean anything needs no decision: refused here, it costs no message, no commit and no place in
a log that is kept permanently. The views may be a moment behind, never wrong about what they show: a job or node
that was reported to a client is in them. Anything that takes a decision (does the state allow it?) stays with the
service. Pure except for the HttpError that the checks raise.
"""

import msgspec

from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units import taints
from fairlead_schemas.units.ids import is_job_id, is_token
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.timestamps import parse_rfc3339
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.commands import ScheduleMaintenance, StartRollout


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class EmptyRequest(_Strict, frozen=True, kw_only=True):
    """Body of a verb that takes nothing."""


class CancelRequest(_Strict, frozen=True, kw_only=True):
    """Body of a cancel. `save`: what runs is to have its notice first, where its job file names one."""

    save: bool = False


class SignalRequest(_Strict, frozen=True, kw_only=True):
    """Body of a signal. `signal`: SIGUSR1, SIGUSR2, SIGINT or SIGHUP, with or without SIG."""

    signal: str


class PiecesRequest(_Strict, frozen=True, kw_only=True):
    """Body of a question: pieces of a directory, by their SHA-256 in hex digits."""

    digests: list[str]


class MoveRequest(_Strict, frozen=True, kw_only=True):
    """Body of a move: where to."""

    queue: str


class TimeChange(_Strict, frozen=True, kw_only=True):
    """Change of a job's times. `total`: longest run time, such as "4h" or a number of seconds; null: no limit."""

    total: str | int | None


class JobChange(_Strict, frozen=True, kw_only=True):
    """Body of PATCH /v1/jobs/{job}: fields of its job file to be changed. A label that is null is removed."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    time: TimeChange | msgspec.UnsetType = msgspec.UNSET
    labels: dict[str, str | None] | msgspec.UnsetType = msgspec.UNSET


class PriceRequest(_Strict, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Body of a price. `model`: as `fairlead usage --by model` names it, or *; `from`: a day of UTC or an RFC 3339 time, "" for now."""

    model: str
    per_gpu_hour: str | int | float
    currency: str
    from_: str = ""


class ExtendRequest(_Strict, frozen=True, kw_only=True, rename={"for_": "for"}):
    """Body of an extension. `for`: how long, such as "2h"; without it for as long as the job's policy allows."""

    for_: str | int = 0


class NodeRequest(_Strict, frozen=True, kw_only=True):
    """Body of cordon and drain. `deadline`: time until the runs there are stopped; 0 waits without limit."""

    reason: str = ""
    deadline: str | int = 0


class TaintRequest(_Strict, frozen=True, kw_only=True):
    """Body of taint and untaint: "key=value:Effect"; untaint takes less ("key", "key:Effect") and no reason."""

    taint: str
    reason: str = ""


class ReasonRequest(_Strict, frozen=True, kw_only=True):
    """Body of verbs that take a reason at most."""

    reason: str = ""


class GpuRequest(_Strict, frozen=True, kw_only=True):
    """Body of restore: the UUID of a faulted GPU; without one, the node itself is meant."""

    gpu: str = ""


class NodeNameRequest(_Strict, frozen=True, kw_only=True):
    """Body of a rollout's done: which node."""

    node: str


class MaintenanceRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/maintenance. `starts` and `ends` are RFC 3339 times; `duration` may stand for `ends`."""

    name: str
    starts: str
    ends: str = ""
    duration: str | int = 0
    notice: str | int = 0
    nodes: list[str] = []
    #: Labels of the intended nodes, in addition to the named ones.
    selector: dict[str, str] = {}
    reason: str = ""


class RolloutRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/rollouts."""

    name: str
    #: Most GPUs of its nodes that may take no work at once.
    budgetGpus: int  # noqa: N815 -- as JSON has it
    nodes: list[str] = []
    selector: dict[str, str] = {}
    #: All nodes there are.
    all: bool = False
    #: Most nodes in hand at once; 0: the budget alone decides.
    nodesMax: int = 0  # noqa: N815 -- as above
    #: Labels that a node has once it is done; none: another boot or journal says so, or `done`.
    want: dict[str, str] = {}
    #: Time that runs may continue. Longer runs are long, and are stopped only with `stopLong`.
    deadline: str | int = 0
    stopLong: bool = False  # noqa: N815 -- as above
    reason: str = ""


class SqlQueryRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/sql."""

    query: str
    #: Rows at most; telemetry has a bound of its own.
    limit: int | None = None
    #: Seconds that it may take; telemetry has a bound of its own.
    timeout_s: float | None = None
    #: A name to cancel it by, 1 to 63 of a-z 0-9 _ -; of several queries at once each needs another.
    id: str = ""


def maintenance_command(wish: MaintenanceRequest, command_id: str, user: str) -> ScheduleMaintenance:
    """Return the command. Raise HttpError (422) naming the field."""
    starts_ns = _moment("starts", wish.starts)
    if bool(wish.ends) == bool(wish.duration):
        raise bad_field("ends", "expected either ends or duration")
    ends_ns = _moment("ends", wish.ends) if wish.ends else starts_ns + duration("duration", wish.duration)
    return ScheduleMaintenance(
        id=command_id,
        user=user,
        name=wish.name,
        starts_ns=starts_ns,
        ends_ns=ends_ns,
        nodes=tuple(wish.nodes),
        selector=_selector(wish.selector),
        notice_ns=duration("notice", wish.notice),
        reason=wish.reason,
    )


def rollout_command(wish: RolloutRequest, command_id: str, user: str) -> StartRollout:
    """Return the command. Raise HttpError (422) naming the field."""
    return StartRollout(
        id=command_id,
        user=user,
        name=wish.name,
        budget_gpus=wish.budgetGpus,
        nodes=tuple(wish.nodes),
        selector=_selector(wish.selector),
        every=wish.all,
        nodes_max=wish.nodesMax,
        want=_selector(wish.want),
        deadline_ns=duration("deadline", wish.deadline),
        stop_long=wish.stopLong,
        reason=wish.reason,
    )


def _selector(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(sorted(f"{key}={value}" for key, value in labels.items()))


def duration(field: str, text: str | int) -> int:
    """Return the field's duration in nanoseconds. Raise HttpError (422) if it cannot be read."""
    try:
        return parse_duration(text)
    except QuantityError as error:
        raise bad_field(field, str(error)) from None


def _moment(field: str, text: str) -> int:
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        message = f'expected a time such as 2026-01-31T08:00:00Z, found "{text[:40]}"'
        raise bad_field(field, message) from None


def is_known_job(views: Views, job: str) -> bool:
    """Return True if the job, or the array of an element that was not offered yet, is in the views."""
    return job in views.jobs.rows or job.partition("_")[0] in views.jobs.rows


def require_job(views: Views, job: str) -> None:
    """Raise HttpError (404) unless the job may be there."""
    if not is_job_id(job):
        raise not_found("job", job[:80])
    if not is_known_job(views, job):
        raise not_found("job", job, hint="GET /v1/jobs lists them; one that ended long ago cannot be changed")


def require_node(views: Views, node: str) -> None:
    """Raise HttpError (404) unless the node is in the views."""
    if not is_token(node) or node not in views.nodes.rows:
        raise unknown_node(node)


def unknown_node(node: str) -> HttpError:
    """Return the 404 of a node that does not exist, or that the caller may not see."""
    return not_found("node", node[:80], hint="GET /v1/nodes lists them")


def require_taint(text: str) -> None:
    """Raise HttpError (422) unless the text is a taint."""
    try:
        taints.parse_full_taint(text)
    except taints.TaintError as error:
        errors = [FieldError(field="taint", message=str(error))]
        raise HttpError(422, "bad_taint", f"taint: {error}", errors=errors) from None
