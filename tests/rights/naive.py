"""A second, slow reading of the rules of rights, against which the list is held: every grant is tried, nothing is kept."""

from collections.abc import Iterable

from fairlead_rights.access_list import Grant, Target
from fairlead_rights.roles import ROLE_TABLE
from fairlead_schemas.policies.rights import Verb

OWN = {"job:read", "job:cancel", "session:open", "session:share"}


def may(
    active: Iterable[str],
    memberships: Iterable[tuple[str, str]],
    grants: Iterable[Grant],
    principal: str,
    verb: Verb,
    target: Target,
) -> bool:
    """Answer from plain lists: active principals, (group, member) pairs, and grants."""
    if principal not in set(active):
        return False
    if target.owner == principal and verb in OWN:
        return True
    subjects = {principal} | {group for group, member in memberships if member == principal}
    return any(grant.subject in subjects and _reaches(grant, verb, target) for grant in grants)


def _reaches(grant: Grant, verb: Verb, target: Target) -> bool:
    row = ROLE_TABLE[grant.role]
    kind, name = grant.scope
    if grant.role == "admin" and kind != "cluster":
        return False
    if kind == "job":
        return verb in row.job and target.job.split("_")[0 if "_" not in name else slice(None)] == (
            name if "_" not in name else name.split("_")
        )
    if kind == "volume":
        return verb in row.volume and target.volume == name
    if verb not in row.wide:
        return False
    if kind == "queue":
        parts, wanted = target.queue.split("/"), name.split("/")
        return parts[: len(wanted)] == wanted
    return kind == "cluster" or getattr(target, kind) == name
