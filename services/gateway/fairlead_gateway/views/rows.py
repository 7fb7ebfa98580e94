"""The rows that the views keep: compact, mutable, written to snapshots as they are."""

import msgspec

from fairlead_schemas.events import Part
from fairlead_schemas.resources import Inventory, Request

NO_SPEC = msgspec.Raw(b"null")


class JobRow(msgspec.Struct, gc=False, omit_defaults=True):
    """One job, one array, or one element of an array. Times are Unix ns; 0: has not happened."""

    id: str
    name: str
    queue: str
    user: str
    project: str
    kind: str
    priority: int
    request: Request
    #: The job file; `NO_SPEC` for an element, whose array has it.
    spec: msgspec.Raw
    state: str
    #: Rises with each row: the order of lists.
    born: int
    submitted_ns: int
    changed_seq: int
    start_at_ns: int = 0
    attempt: int = 1
    #: Rank of the open offer; offers are taken in rising rank.
    offer_rank: int = 0
    placed_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    parts: tuple[Part, ...] = ()
    #: {earlier attempt: the nodes it ran on}, in rank order: where its output lies.
    past: dict[int, tuple[str, ...]] = {}
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    #: Why the job was queued again or ended (closed words of the events).
    reason: str = ""
    by: str = ""
    not_before_ns: int = 0
    charged: bool = False
    run_ended: bool = False
    #: An element's array; "" for others.
    array_id: str = ""
    array: tuple[int, int] | None = None
    #: For an array: {state: elements}, "waiting" for those not offered yet.
    elements: dict[str, int] | None = None


class Refusal(msgspec.Struct, frozen=True):
    """The placer's newest refusal of a class of equal requests: the decision's own words."""

    request: Request
    job: str
    attempt: int
    sequence: int
    at_ns: int
    reasons: dict[str, int]
    nodes: int
    fitting: int
    gpu_milli_free: int
    gpu_milli_total: int


class QueueRow(msgspec.Struct, gc=False, omit_defaults=True):
    """One queue. `states` counts its jobs and elements ever by state; arrays themselves are not counted."""

    path: str
    gpu_quota_milli: int | None = None
    gpu_milli_charged: int = 0
    states: dict[str, int] = {}
    #: Elements of its arrays that were not offered yet.
    unborn: int = 0


class NodeRow(msgspec.Struct, gc=False, omit_defaults=True):
    """One node and what it holds: {"<job>.<attempt>": part}."""

    id: str
    inventory: Inventory
    boot_id: str
    incarnation: str
    cordoned: bool = False
    draining: bool = False
    drained: bool = False
    lost: bool = False
    reason: str = ""
    held: dict[str, Part] = {}
    changed_seq: int = 0


class Outcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a command led to. `code` is "" when it was carried out."""

    sequence: int
    job: str = ""
    code: str = ""
    message: str = ""
    field: str = ""
    #: The submit repeated an earlier one under its key.
    repeated: bool = False
