"""Events of a decision of the access core, with what later commands of the same decision must know of them.

Rights are judged on the state before the commit, which is the sequence that every command of it names. Only what two commands of
one commit could break together is followed here: the last admin, suspensions, and the numbers of tokens.
"""

from fairlead_bus.core import CommitDraft
from fairlead_rights.access_list import Grant
from fairlead_rights.state import AccessState
from fairlead_schemas.wire.events import AccessEvent


class AccessDraft(CommitDraft[AccessState, AccessEvent]):
    """Events decided so far. The state stays as it is."""

    __slots__ = ("_admins", "_sessions", "_sources", "admitted", "issued", "level", "replaced", "suspended", "tokens")

    def __init__(self, state: AccessState, now_ns: int) -> None:
        super().__init__(state, now_ns)
        self.admitted: set[str] = set()
        self.suspended: set[str] = set()
        #: {principal: tokens issued by this decision}
        self.issued: dict[str, int] = {}
        #: Ids of the tokens that it issued.
        self.tokens: set[str] = set()
        #: Level that it raised the log to; 0: to none.
        self.level = 0
        #: Refresh tokens that it ends for a new sign-in.
        self.replaced: set[str] = set()
        self._sessions: dict[str, list[str]] = {}
        self._sources: dict[Grant, set[str]] = {}
        self._admins: set[str] | None = None

    @property
    def admins(self) -> set[str]:
        """Active principals that are admins by a grant of their own, after the events so far. Computed when first needed."""
        if self._admins is None:
            self._admins = self.state.access.admins()
        return self._admins

    def sessions_of(self, principal: str) -> list[str]:
        """Sessions of a principal after the events so far, the oldest first. The caller adds and removes those of its events."""
        if principal not in self._sessions:
            self._sessions[principal] = list(self.state.sessions_of.get(principal, ()))
        return self._sessions[principal]

    def sources_of(self, grant: Grant) -> set[str]:
        """Sources that state a grant after the events so far. The caller adds and removes those of its events."""
        if grant not in self._sources:
            held = self.state.access.grants.get(grant.subject, {})
            self._sources[grant] = set(held.get((grant.role, grant.scope), ()))
        return self._sources[grant]

    def is_active(self, principal: str) -> bool:
        """Return True if the principal is active after the events so far."""
        if principal in self.suspended:
            return False
        return principal in self.admitted or self.state.access.principals.get(principal, False)
