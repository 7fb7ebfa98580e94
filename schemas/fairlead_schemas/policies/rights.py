"""Words of rights: verbs, roles, and scopes in text form. The table of roles and every decision are in `fairlead_rights`.

"Subject is a Role in a Scope" is one grant: `group:vision` is a `member` in `queue:research/vision`. A subject is a principal
(a person or a service account, by an opaque id) or a group. Scopes of queues are compared by path segments, so
`queue:research/vis` does not cover `research/vision`.
"""

from typing import Literal, NamedTuple, get_args

from fairlead_schemas.units.ids import is_job_id, is_queue_path, is_token

Verb = Literal[
    "job:submit",  # submit jobs to a queue
    "job:read",  # see jobs with their output, events and metrics
    "job:cancel",  # cancel, hold, release, move or extend jobs
    "session:open",  # enter a running session, its terminal and its ports
    "session:share",  # give others access to one job
    "queue:read",  # see queues with their limits and use
    "queue:set",  # change, add and remove queues; set their idle policies
    "node:read",  # see nodes, the cluster map and free resources
    "node:operate",  # cordon, drain, taint, repair and upgrade nodes
    "volume:read",
    "volume:write",
    "volume:manage",
    "sql:read",  # query the warehouse, for the rows that one may see
    "audit:read",  # read the whole log and the record of access
    "rights:grant",  # give and take roles, up to the rights that one holds
]
VERBS: tuple[Verb, ...] = get_args(Verb)

Role = Literal["viewer", "member", "operator", "queue-admin", "auditor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

ScopeKind = Literal["cluster", "pool", "queue", "project", "job", "volume"]
SCOPE_KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)

GROUP = "group:"
#: Characters of a subject: opaque ids and group names.
SUBJECT_CHARS_MAX = 128


class ScopeError(ValueError):
    """A scope's text cannot be read. The message states what was expected and found."""


class Scope(NamedTuple):
    """Part of the cluster in which a role holds: the whole cluster (no name), or one thing of a kind with all below it."""

    kind: ScopeKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


CLUSTER = Scope("cluster")
_NAMED = {"pool": is_token, "queue": is_queue_path, "project": is_token, "job": is_job_id, "volume": is_token}


def parse_scope(text: str) -> Scope:
    """Read "cluster", "pool:a100", "queue:research/vision", "project:llm", "job:812" or "volume:data". Raises ScopeError."""
    kind, colon, name = text.partition(":")
    if kind == "cluster" and not colon:
        return CLUSTER
    valid = _NAMED.get(kind)
    if valid is None:
        kinds = ", ".join(f"{kind}:NAME" for kind in _NAMED)
        raise ScopeError(f'expected "cluster" or one of {kinds}, found "{text[:SUBJECT_CHARS_MAX]}"')
    if not valid(name):
        expected = {"queue": "a queue's path such as research/vision", "job": "a job's id such as 812"}.get(
            kind, "1 to 63 of a-z 0-9 _ -"
        )
        raise ScopeError(f'expected {expected} after "{kind}:", found "{name[:SUBJECT_CHARS_MAX]}"')
    return Scope(kind, name)  # type: ignore[arg-type]  # one of _NAMED's keys


def is_group(subject: str) -> bool:
    """Return True if a subject is a group, False for a principal."""
    return subject.startswith(GROUP)
