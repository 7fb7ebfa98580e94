"""Conditions that hold after every commit of the access core."""

from collections.abc import Iterator

from fairlead_access.limits import SESSIONS_OF_PRINCIPAL_MAX, TOKENS_OF_PRINCIPAL_MAX
from fairlead_rights.state import AccessState


def broken(state: AccessState) -> Iterator[str]:
    """Yield a sentence for each condition that does not hold."""
    access = state.access
    if access.principals.keys() != state.kinds.keys():
        yield "the list of grants and the core know different principals"
    for kind, items in (("token", state.tokens), ("session", state.sessions)):
        for item in items.values():
            if not access.principals.get(item.principal, False):
                yield f"{kind} {item.id} is in force for {item.principal}, who is not active"
    if any(len(held) > TOKENS_OF_PRINCIPAL_MAX for held in state.tokens_of.values()):
        yield "a principal has more tokens than allowed"
    if any(len(held) > SESSIONS_OF_PRINCIPAL_MAX for held in state.sessions_of.values()):
        yield "a principal has more sessions than allowed"
    if state.grant_count != sum(len(held) for held in access.grants.values()):
        yield "the number of grants is wrong"
