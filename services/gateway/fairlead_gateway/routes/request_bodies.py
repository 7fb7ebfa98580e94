"""Bodies of requests on nodes, and the commands made from them. Pure except for the refusals that they raise.

Checks that the objects named by a command exist, before it is sent.

A command that cannot mean anything needs no decision: refused here, it costs no message, no commit and no place in
a log that is kept permanently. The views may be a moment behind, never wrong about what they show: a job or node
that was reported to a client is in them. Anything that takes a decision (does the state allow it?) stays with the
service. Pure.
"""

import msgspec

from fairlead_gateway.errors import HttpError, invalid, not_found, rejected
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.units import taints
from fairlead_schemas.units.ids import is_job_id, is_token
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.timestamps import parse_rfc3339
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.commands import ScheduleMaintenance, StartRollout


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


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


def maintenance_command(wish: MaintenanceRequest, command_id: str, user: str) -> ScheduleMaintenance:
    """Raises Refused (422) naming the field."""
    starts_ns = _moment("starts", wish.starts)
    if bool(wish.ends) == bool(wish.duration):
        raise invalid([FieldError(field="ends", message="expected either ends or duration")])
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
    """Raises Refused (422) naming the field."""
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
    """Nanoseconds. Raises Refused (422)."""
    try:
        return parse_duration(text)
    except QuantityError as error:
        raise invalid([FieldError(field=field, message=str(error))]) from None


def _moment(field: str, text: str) -> int:
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        told = f'expected a time such as 2026-01-31T08:00:00Z, found "{text[:40]}"'
        raise invalid([FieldError(field=field, message=told)]) from None


def node_refusal(outcome: OutcomeRow) -> HttpError:
    """404 for what is unknown, 422 for what cannot be meant, 409 for what does not fit the present state."""
    if outcome.code.startswith("bad_") or outcome.code in ("budget_too_small", "too_many"):
        return HttpError(422, outcome.code, outcome.message)
    return rejected(outcome.code, outcome.message, submit=False)


def require_job(views: Views, job: str) -> None:
    """Raise Refused (404) unless the job, or the array of an element that was not offered yet, is in the views."""
    if not is_job_id(job):
        raise not_found("job", job[:80])
    if job not in views.jobs.rows and job.partition("_")[0] not in views.jobs.rows:
        raise not_found("job", job, hint="GET /v1/jobs lists them; one that ended long ago cannot be changed")


def require_node(views: Views, node: str) -> None:
    """Raise Refused (404) unless the node is in the views."""
    if not is_token(node) or node not in views.nodes.rows:
        raise not_found("node", node[:80], hint="GET /v1/nodes lists them")


def require_taint(text: str) -> None:
    """Raise Refused (422) unless the text is a taint."""
    try:
        taints.parse_full_taint(text)
    except taints.TaintError as error:
        errors = [FieldError(field="taint", message=str(error))]
        raise HttpError(422, "bad_taint", f"taint: {error}", errors=errors) from None
