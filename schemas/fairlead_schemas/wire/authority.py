"""Authority of a command: who sent it, by which credential, and the sequence at which their rights were judged.

The gateway puts it on every command that it sends for a signed-in caller, and the deciding service repeats it in the events that
answer the command. So everybody who has the log can judge the command again (invariant I13). People, tokens and sessions are
opaque ids here (ADR 0022).
"""

from typing import Annotated

import msgspec

#: Characters of a principal's, token's or session's id.
ID_CHARS_MAX = 64

#: Start of `Authority.via` where the credential is a token.
TOKEN = "token:"  # noqa: S105 -- no secret

_Id = Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)]


class Authority(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Right by which a command was sent."""

    #: Principal that sent it.
    principal: _Id
    #: Its credential: "token:<id>" or "session:<id>".
    via: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX + 8)]
    #: Log sequence up to which the gateway had folded the grants when it let the command pass.
    rights: int
    #: Principal for whom it acts, where that is another one: the command's `user`.
    act_as: _Id = ""

    @property
    def token(self) -> str:
        """Id of the token by which it was sent; "" for a session."""
        return self.via.removeprefix(TOKEN) if self.via.startswith(TOKEN) else ""
