"""State of access: the list of grants, and the tokens and sessions in force, with what each token may do.

The access service, the gateway, replay and the simulator fold it from the same events (`effects.py`).
Start at `AccessState.may`.
"""

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from fairlead_rights.access_list import AccessList, Reach, Target, covers, reach_of, right_to_grant
from fairlead_rights.roles import verbs_of
from fairlead_schemas.policies.rights import Role, Scope, Verb, parse_scope
from fairlead_schemas.wire.events.access import PrincipalKind, TokenKind
from fairlead_schemas.wire.levels import FIRST

#: Limits of tokens that are shared; beyond it some are held twice.
LIMITS_SHARED_MAX = 10_000


class Token(msgspec.Struct, frozen=True):
    """Token in force."""

    id: str
    principal: str
    kind: TokenKind
    expires_ns: int
    verbs: tuple[Verb, ...]
    scopes: tuple[str, ...]


class SignIn(msgspec.Struct, frozen=True):
    """Sign-in session in force."""

    id: str
    principal: str
    provider: str
    expires_ns: int


class AccessState:
    """Tables of access. Only `effects.py` changes them."""

    def __init__(self) -> None:
        self.access = AccessList()
        #: {principal: kind}, of active and suspended ones.
        self.kinds: dict[str, PrincipalKind] = {}
        #: Queues that exist: grants at a queue end with it.
        self.queues: set[str] = set()
        self.tokens: dict[str, Token] = {}
        self.sessions: dict[str, SignIn] = {}
        #: Derived: {principal: ids}, in the order in which they were issued or opened.
        self.tokens_of: dict[str, dict[str, None]] = {}
        self.sessions_of: dict[str, dict[str, None]] = {}
        #: Level of the log's format that a person has raised (wire/levels.py).
        self.level = FIRST
        #: Replaced by every change. What was judged under one epoch needs no second look while it is the same object.
        self.epoch = object()
        #: Derived: number of grants over all subjects.
        self.grant_count = 0
        #: Derived: {token with limits: its verbs (empty: all), the scopes in which it acts (None: all)}
        self._limits: dict[str, tuple[frozenset[Verb], Reach | None]] = {}

    def add_queue(self, path: str) -> None:
        """A queue is configured. One that is new has no grants: those that were given on their way to one that is gone end here."""
        if path not in self.queues:
            self.grant_count -= self.access.end_scope(Scope("queue", path))
            self.queues.add(path)

    def drop_queue(self, path: str) -> None:
        """A queue is gone, and the grants at it with it, so that a new queue of the name gives nobody rights by accident."""
        self.queues.discard(path)
        self.grant_count -= self.access.end_scope(Scope("queue", path))

    def end_volume(self, name: str) -> None:
        """A volume is gone, or new: grants that were given at its name end here."""
        self.grant_count -= self.access.end_scope(Scope("volume", name))

    def add_token(self, token: Token) -> None:
        """Put a token in force."""
        self.tokens[token.id] = token
        if token.verbs or token.scopes:
            self._limits[token.id] = _limits_of(token.verbs, token.scopes)
        self.tokens_of.setdefault(token.principal, {})[token.id] = None

    def drop_token(self, token_id: str) -> None:
        """Remove a token; no effect if there is none."""
        token = self.tokens.pop(token_id, None)
        if token is not None:
            self._limits.pop(token_id, None)
            _drop(self.tokens_of, token.principal, token_id)

    def add_session(self, session: SignIn) -> None:
        """Put a session in force."""
        self.sessions[session.id] = session
        self.sessions_of.setdefault(session.principal, {})[session.id] = None

    def drop_session(self, session_id: str) -> None:
        """Remove a session; no effect if there is none."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            _drop(self.sessions_of, session.principal, session_id)

    def may(self, principal: str, verb: Verb, target: Target, token: str = "") -> bool:
        """Return True if the principal may use the verb on the target now. `token`: id of the token that it sends, which can
        only take rights away; "" for a session.
        """
        if not self.access.may(principal, verb, target):
            return False
        if not token or (token not in self._limits and token in self.tokens):
            return True  # `is_within` in place: most tokens have no limits, and this is called for every submit
        return self.is_within(token, verb, target)

    def may_grant(self, principal: str, role: Role, scope: Scope, target: Target, token: str = "") -> bool:
        """Return True if the principal may give or take this role, as `AccessList.may_grant` says. `token`: as in `may`; one that
        lacks a verb of the role there cannot give it either.
        """
        if not self.access.may_grant(principal, role, scope, target):
            return False
        verbs: set[Verb] = {*verbs_of(role, scope.kind), right_to_grant(scope)}
        return not token or all(self.is_within(token, verb, target) for verb in verbs)

    def may_issue(self, token: str) -> bool:
        """Return True if a credential may make tokens: a session ("") or the owner's file. A token never makes a token."""
        return not token or (token in self.tokens and self.tokens[token].kind == "owner")

    def may_revoke(self, token: str, other: str) -> bool:
        """Return True if a credential may end another token of its principal: a session (""), or a token without limits. One with limits
        ends itself alone, since the others may do what it may not.
        """
        return not token or token == other or (token in self.tokens and token not in self._limits)

    def is_within(self, token: str, verb: Verb, target: Target) -> bool:
        """Return True if a token's own limits let it use the verb on the target, whatever its principal may."""
        if token not in self.tokens:
            return False
        limits = self._limits.get(token)
        if limits is None:
            return True
        verbs, reach = limits
        return (not verbs or verb in verbs) and (reach is None or covers(reach, target))

    def has_verb(self, token: str, verb: Verb) -> bool:
        """Return True if a token's own limits let it use the verb somewhere."""
        limits = self._limits.get(token)
        return token in self.tokens and (limits is None or not limits[0] or verb in limits[0])

    def reaches(self, principal: str, verb: Verb, token: str = "") -> tuple[Reach, ...]:
        """Return parts of the cluster that must all cover a target for the principal to use the verb on it; () if it may
        nowhere. The verb of an owner on its own things is left out.
        """
        held = self.access.reach(principal, verb)
        if held is None or (token and not self.has_verb(token, verb)):
            return ()
        own = self._limits[token][1] if token in self._limits else None
        return (held,) if own is None else (held, own)

    def expiries(self) -> Iterator[int]:
        """Yield the Unix ns at which each token and session expires."""
        yield from (token.expires_ns for token in self.tokens.values())
        yield from (session.expires_ns for session in self.sessions.values())


@lru_cache(LIMITS_SHARED_MAX)
def _limits_of(verbs: tuple[Verb, ...], scopes: tuple[str, ...]) -> tuple[frozenset[Verb], Reach | None]:
    """Return the limits of tokens with these verbs and scopes. Equal ones share theirs, which is most of a token's memory."""
    return frozenset(verbs), reach_of(map(parse_scope, scopes)) if scopes else None


def _drop(index: dict[str, dict[str, None]], principal: str, item: str) -> None:
    held = index[principal]
    del held[item]
    if not held:
        del index[principal]
