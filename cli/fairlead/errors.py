"""Errors of the command line, each with its exit code.

Exit codes are a promise to scripts: 2 usage or a refused input, 3 not found, 4 denied, 5 conflict,
6 unreachable, 124 wait timed out, 1 anything else.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_schemas.http.api import MissingRight, Problem


class FairleadError(Exception):
    """Something went wrong; `hint` says what to do about it, `problem` is the API's own answer if there was one."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", problem: "Problem | None" = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.problem = problem


class InputRefused(FairleadError):
    """The input cannot be accepted as it is: a field is wrong, or no node could ever run the job."""

    exit_code = 2


class NotFound(FairleadError):
    """There is no such job, node or queue."""

    exit_code = 3


class Denied(FairleadError):
    """The token is missing, wrong, or may not do this."""

    exit_code = 4


class Conflict(FairleadError):
    """The state of the thing does not allow this, or the idempotency key was used for something else."""

    exit_code = 5


class Unreachable(FairleadError):
    """The gateway cannot be reached, or cannot answer now."""

    exit_code = 6


class WaitTimedOut(FairleadError):
    """The awaited state was not reached in time."""

    exit_code = 124


_BY_STATUS: dict[int, type[FairleadError]] = {
    400: InputRefused,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    412: Conflict,
    413: InputRefused,
    415: InputRefused,
    422: InputRefused,
    502: Unreachable,
    503: Unreachable,
    504: Unreachable,
}


#: What to type next, by the code of a refusal; the gateway's own hint speaks of paths and methods.
_HINTS = {
    "unknown_queue": "`fairlead queues` lists them; `fairlead queues apply -f queues.yaml` creates one, from a file such as {queues: {research: {queues: {vision: {maximum: {nvidia.com/gpu: 16}}}}}}",
}


#: {list of the API: what a person types to see it}
LISTS = {
    "datasets": "`fairlead datasets list`",
    "jobs": "`fairlead jobs`",
    "maintenance": "`fairlead maintenance`",
    "nodes": "`fairlead nodes`",
    "notifications": "`fairlead notify list`",
    "people": "`fairlead people list`",
    "pools": "`fairlead queues -o wide`",
    "queues": "`fairlead queues`",
    "rollouts": "`fairlead rollout`",
    "schemas/events": "docs/reference/events.md",
    "schemas/job": "docs/reference/jobs.md",
    "schemas/queues": "docs/reference/queues.md",
    "service-accounts": "`fairlead service-accounts list`",
    "services": "`fairlead service list`",
    "storage-classes": "`fairlead volumes classes`",
    "tokens": "`fairlead tokens list`",
    "volumes": "`fairlead volumes list`",
}


def as_typed(hint: str) -> str:
    """Return a hint of the gateway in words of the command line, which has no paths and methods."""
    for path, typed in LISTS.items():
        hint = re.sub(rf"\bGET /v1/{path}(?![\w/-])", typed, hint)
    hint = hint.replace("DELETE /v1/tokens/{id}", "`fairlead tokens revoke`")
    return hint.replace("PUT creates one", "`fairlead queues apply -f queues.yaml` creates one")


def hint_for(code: str) -> str:
    """Return a hint for a refusal of this code; empty where the message needs none."""
    return _HINTS.get(code, "")


def from_problem(problem: "Problem") -> FairleadError:
    """The error of an API answer; its message names every field that the API named."""
    from fairlead_schemas.units.validation import printable

    lines = [problem.detail or problem.title]
    for error in problem.errors:
        field, message = printable(error.get("field", "")), error.get("message", "")
        if message not in lines[0]:
            lines.append(f"  {field}: {message}" if field else f"  {message}")
    if problem.why is not None:
        lines += _missing_right(problem.why)
    code = problem.type.rpartition(":")[2]
    if (
        code == "user_header"
    ):  # a command without a credential names its user, which only a gateway without sign-on takes
        return Denied(
            "sign in first: this gateway takes no names, it has sign-on", hint="fairlead login", problem=problem
        )
    kind = _BY_STATUS.get(problem.status, FairleadError)
    # Who could grant it is among the lines.
    is_stated = problem.why is not None and bool(problem.why.verb) and not problem.why.token
    hint = "" if is_stated else hint_for(code) or as_typed(problem.hint)
    if problem.status == 401:
        hint = hint or "fairlead login"
    return kind("\n".join(lines), hint=hint, problem=problem)


def _missing_right(why: "MissingRight") -> list[str]:
    """Return the lines of a refusal for want of a right: what is missing, what the sender holds, and who could grant it."""
    from fairlead_schemas.units.validation import printable

    if not why.verb:
        return []
    lines = [f"missing: {why.verb} on {why.on}"]
    if why.token:
        lines.append("you have it, but this token is limited to less")
    else:
        lines += [
            f"you hold: {'; '.join(why.roles) or 'no role'}",
            f"could grant it: {', '.join(why.givers) or 'an admin'}",
        ]
    return [f"  {printable(line)}" for line in lines]
