"""People in queue files: roles that they state, which are grants of the source "queues", each on the queue whose entry states it; and the
users whom limits and pools name, by login names there and by ids in the log.

A named queue has exactly the roles of its entry, and other queues keep theirs. With a queue that is removed all grants at it end,
by the event of its removal (`fairlead_rights.effects`). The access service decides; what it would refuse is refused here before
the queues change. Start at `QueueRoles.check`.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec import structs

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.targets import queue_target
from fairlead_gateway.errors import HttpError, invalid
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.routes.access import known_principals, require_grantable, require_sign_on
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.queue_documents import QUEUE_FILES
from fairlead_rights.access_list import Grant
from fairlead_schemas.policies.rights import GROUP, Role, Scope, is_group
from fairlead_schemas.queuefile.settings import ANY_USER, PoolEntry, QueueEntry
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire import commands as cmd

#: Names of nobody that one answer lists.
UNKNOWN_MAX = 20
_HINT_PERSON = "GET /v1/people lists login names"
_HINT_GROUP = "GET /v1/groups lists groups; one that no directory and no sign-in has named yet is granted by hand first: fairlead access grant"

type StatedRoles = Mapping[str, Iterable[tuple[str, Role]]]


class CheckedRoles(NamedTuple):
    """Grants that a file states, with the queues that it names."""

    paths: tuple[str, ...]
    grants: frozenset[Grant]


class QueueRoles:
    """Applies the roles of queue files, and finds the users that they name."""

    def __init__(self, views: Views, accounts: Accounts) -> None:
        self._views = views
        self._accounts = accounts

    async def check(self, head: RequestHead, paths: Iterable[str], stated: StatedRoles) -> CheckedRoles:
        """Return the grants of a file that names the queues `paths`. Raise HttpError: 422 with the field of each unknown subject, 403 unless
        the sender may give what is new and take what is gone, 409 where roles are stated without sign-on.
        """
        if any(stated.values()):
            require_sign_on(head)
        grants: set[Grant] = set()
        unknown: dict[str, str] = {}
        for path, pairs in stated.items():
            for subject, role in pairs:
                found = await self._accounts.people.resolve(subject)
                if not self._is_known(found):
                    unknown[f"queues.{path}.roles.{subject}"] = subject
                grants.add(Grant(found, role, Scope("queue", path)))
        if unknown:
            raise await self._nobody(unknown, head.caller)
        checked = CheckedRoles(tuple(paths), frozenset(grants))
        for grant in sorted(checked.grants ^ self._stated(checked.paths)):
            target = queue_target(self._views, grant.scope.name)
            require_grantable(self._views, head.caller, grant.role, grant.scope, target)
        return checked

    def _is_known(self, subject: str) -> bool:
        """Return True for a principal, and for a group that somebody was named a member of, or that holds a role."""
        access = self._views.access
        return subject in (access.access.groups if is_group(subject) else access.kinds) or (
            is_group(subject) and subject in access.access.grants
        )

    async def _nobody(self, unknown: Mapping[str, str], caller: Caller) -> HttpError:
        """Return the 422 about subjects that are nobody, by their fields, with the names that were probably meant."""
        access = self._views.access.access
        logins = sorted((await self._accounts.people.logins(sorted(known_principals(self._views, caller)))).values())
        groups = sorted({*access.groups, *(subject for subject in access.grants if is_group(subject))})
        errors = [
            FieldError(
                field=field,
                message=f'there is no group "{subject.removeprefix(GROUP)}"{did_you_mean(subject, groups)}'
                if is_group(subject)
                else f'nobody has the login name "{subject}"{did_you_mean(subject, logins)}',
            )
            for field, subject in islice(unknown.items(), UNKNOWN_MAX)
        ]
        return invalid(errors, hint=_HINT_GROUP if any(map(is_group, unknown.values())) else _HINT_PERSON)

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

    async def with_ids(self, command: cmd.ApplyQueues, caller: Caller) -> cmd.ApplyQueues:
        """Return a command whose limits and lists of users name principals by their ids, which stay when a login changes. Raise HttpError (422)
        with the field of each name that is nobody's. Without sign-on users are plain names, and nothing changes.
        """
        if caller.is_open:
            return command
        wrong: list[FieldError] = []
        queues: list[QueueEntry] = []
        for queue in command.queues:
            ids = await self._ids(queue.settings.users, f"queues.{queue.path}", wrong)
            users = {ids[name]: amounts for name, amounts in queue.settings.users.items() if name in ids}
            queues.append(structs.replace(queue, settings=structs.replace(queue.settings, users=users)))
        pools: list[PoolEntry] = []
        for pool in command.pools:
            listed = tuple((await self._ids(pool.settings.users, f"pools.{pool.pool}", wrong)).values())
            pools.append(structs.replace(pool, settings=structs.replace(pool.settings, users=listed)))
        if wrong:
            raise invalid(wrong, hint=_HINT_PERSON)
        return structs.replace(command, queues=tuple(queues), pools=tuple(pools))

    async def _ids(self, names: Iterable[str], at: str, wrong: list[FieldError]) -> dict[str, str]:
        """Return {name: id}, and add each name that is nobody's, or named twice, to `wrong`, up to UNKNOWN_MAX."""
        found: dict[str, str] = {}
        for name in names:
            principal = name if name == ANY_USER else await self._accounts.people.resolve(name)
            if principal != ANY_USER and principal not in self._views.access.kinds:
                wrong.append(FieldError(field=f"{at}.users.{name}", message=f'nobody has the login name "{name}"'))
            elif principal in found.values():
                wrong.append(FieldError(field=f"{at}.users.{name}", message="named twice, by login name and by id"))
            else:
                await self._accounts.people.find(principal)  # the answer shows its name
                found[name] = principal
            if len(wrong) >= UNKNOWN_MAX:
                break
        return found

    async def _send(self, path: str, grants: set[Grant], head: RequestHead) -> None:
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
