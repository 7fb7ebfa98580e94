"""Callers: the gateway's knowledge of a caller, passed to the services that answer. This module decides nothing."""

from typing import Literal, get_args

import msgspec

#: member: own jobs and those of own projects | auditor: reads everything | admin: everything.
type Role = Literal["member", "auditor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role.__value__)


class Caller(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caller of the API, with role and visible projects."""

    user: str
    role: Role
    #: Projects whose jobs a member sees beside the own ones.
    projects: tuple[str, ...] = ()

    @property
    def sees_all(self) -> bool:
        """True where nothing is kept from this one."""
        return self.role != "member"


#: Whoever reaches a gateway that was told of no identities, as on a local stack.
ANONYMOUS_ADMIN = Caller(user="anonymous-admin", role="admin")
