"""Roles that queue files state: grants of the source "queues", each on the queue whose entry states it.

A named queue has exactly the roles of its entry, and other queues keep theirs. A removed queue loses those of files; what was granted
by hand is left to people, and is listed in the answer. The access service decides; what it would refuse is refused here before the
queues change. Start at `QueueRoles.check`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.targets import queue_target
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.routes.access import held, require_grantable, require_sign_on, subject_of
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import QUEUE_FILES
from fairlead_rights.access_list import Grant
from fairlead_schemas.http.accounts import RoleHeld
from fairlead_schemas.policies.rights import Role, Scope
from fairlead_schemas.wire import commands as cmd

type StatedRoles = Mapping[str, Iterable[tuple[str, Role]]]


class CheckedRoles(NamedTuple):
    """Grants that a file states, with the queues that it names."""

    paths: tuple[str, ...]
    grants: frozenset[Grant]


class QueueRoles:
    """Applies the roles of queue files."""

    def __init__(self, views: Views, accounts: Accounts) -> None:
        self._views = views
        self._accounts = accounts

    async def check(self, head: RequestHead, paths: Iterable[str], stated: StatedRoles) -> CheckedRoles:
        """Return the grants of a file that names the queues `paths`. Raise HttpError: 404 for an unknown subject, 403 unless the sender may
        give what is new and take what is gone, 409 where roles are stated without sign-on.
        """
        if any(stated.values()):
            require_sign_on(head)
        grants: set[Grant] = set()
        for path, pairs in stated.items():
            for subject, role in pairs:
                found = await subject_of(self._views, self._accounts, subject)
                grants.add(Grant(found, role, Scope("queue", path)))
        checked = CheckedRoles(tuple(paths), frozenset(grants))
        for grant in sorted(checked.grants ^ self._stated(checked.paths)):
            target = queue_target(self._views, grant.scope.name)
            require_grantable(self._views, head.caller, grant.role, grant.scope, target)
        return checked

    async def apply(self, head: RequestHead, checked: CheckedRoles) -> None:
        """Apply checked roles. One command for each queue of the file that is in no other one of it. Raise HttpError."""
        for root in checked.paths:
            if any(_is_below(root, other) for other in checked.paths if other != root):
                continue
            named = {path for path in checked.paths if _is_below(path, root)}
            before = {grant for grant in self._of_files() if _is_below(grant.scope.name, root)}
            wanted = {grant for grant in checked.grants if grant.scope.name in named}
            wanted |= {grant for grant in before if grant.scope.name not in named}
            if wanted != before:
                await self._send(root, wanted, head)

    async def removed(self, paths: Iterable[str]) -> list[RoleHeld]:
        """Take back what files granted on removed queues, and return the grants that people gave there."""
        gone, left = set(paths), list[RoleHeld]()
        for path in sorted(gone & {grant.scope.name for grant in self._of_files()}):
            await self._send(path, {g for g in self._of_files() if g.scope.name.startswith(f"{path}/")})
        for subject, grants in sorted(self._views.access.access.grants.items()):
            left += [
                held(Grant(subject, role, scope))
                for role, scope in sorted(grants)
                if scope.kind == "queue" and scope.name in gone
            ]
        return left

    async def _send(self, path: str, grants: set[Grant], head: RequestHead | None = None) -> None:
        entries = tuple(
            cmd.RoleEntry(
                subject=grant.subject,
                role=grant.role,
                scope=str(grant.scope),
                pool=queue_target(self._views, grant.scope.name).pool,
            )
            for grant in sorted(grants)
        )
        await self._accounts.apply_roles(QUEUE_FILES, f"queue:{path}", entries, head)

    def _stated(self, paths: Iterable[str]) -> set[Grant]:
        named = set(paths)
        return {grant for grant in self._of_files() if grant.scope.name in named}

    def _of_files(self) -> set[Grant]:
        """Grants on queues that queue files state now."""
        return {
            Grant(subject, role, scope)
            for subject, grants in self._views.access.access.grants.items()
            for (role, scope), sources in grants.items()
            if scope.kind == "queue" and QUEUE_FILES in sources
        }


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")
