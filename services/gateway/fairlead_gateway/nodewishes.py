"""Bodies of requests on nodes, and the commands made from them. Pure except for the refusals that they raise."""

import msgspec

from fairlead_gateway.moments import parse_rfc3339
from fairlead_gateway.problems import Refused, invalid, rejected
from fairlead_gateway.views.rows import Outcome
from fairlead_schemas.jobfile.job_spec import FieldError
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.wire.commands import ScheduleMaintenance, StartRollout


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class TaintWish(_Strict, frozen=True, kw_only=True):
    """Body of taint and untaint: "key=value:Effect"; untaint takes less ("key", "key:Effect") and no reason."""

    taint: str
    reason: str = ""


class ReasonWish(_Strict, frozen=True, kw_only=True):
    """Body of verbs that take a reason at most."""

    reason: str = ""


class GpuWish(_Strict, frozen=True, kw_only=True):
    """Body of restore: the UUID of a faulted GPU; without one, the node itself is meant."""

    gpu: str = ""


class NodeNameWish(_Strict, frozen=True, kw_only=True):
    """Body of a rollout's done: which node."""

    node: str


class MaintenanceWish(_Strict, frozen=True, kw_only=True):
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


class RolloutWish(_Strict, frozen=True, kw_only=True):
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


def maintenance_command(wish: MaintenanceWish, command_id: str, user: str) -> ScheduleMaintenance:
    """Raises Refused (422) naming the field."""
    starts_ns = _moment("starts", wish.starts)
    if bool(wish.ends) == bool(wish.duration):
        raise invalid([FieldError(field="ends", message="expected either ends or duration")])
    ends_ns = _moment("ends", wish.ends) if wish.ends else starts_ns + duration("duration", wish.duration)
    return ScheduleMaintenance(
        id=command_id, user=user, name=wish.name, starts_ns=starts_ns, ends_ns=ends_ns, nodes=tuple(wish.nodes),
        selector=_selector(wish.selector), notice_ns=duration("notice", wish.notice), reason=wish.reason,
    )  # fmt: skip


def rollout_command(wish: RolloutWish, command_id: str, user: str) -> StartRollout:
    """Raises Refused (422) naming the field."""
    return StartRollout(
        id=command_id, user=user, name=wish.name, budget_gpus=wish.budgetGpus, nodes=tuple(wish.nodes),
        selector=_selector(wish.selector), every=wish.all, nodes_max=wish.nodesMax, want=_selector(wish.want),
        deadline_ns=duration("deadline", wish.deadline), stop_long=wish.stopLong, reason=wish.reason,
    )  # fmt: skip


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


def refusal_of(outcome: Outcome) -> Refused:
    """404 for what is unknown, 422 for what cannot be meant, 409 for what does not fit the present state."""
    if outcome.code.startswith("bad_") or outcome.code in ("budget_too_small", "too_many"):
        return Refused(422, outcome.code, outcome.message)
    return rejected(outcome.code, outcome.message, submit=False)
