"""The sender of a request, with its rights as of now.

A caller is made once for a credential and kept (`callers.py`); its answers come from the folded state of access, so a changed
grant counts from the moment at which it is folded. Start at `Caller.may` and `Caller.require`.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from fairlead_gateway.errors import HttpError
from fairlead_rights.access_list import Reach, Target
from fairlead_rights.roles import OWNER_VERBS
from fairlead_rights.state import AccessState
from fairlead_schemas.http.api import MissingRight
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.wire.authority import Authority

_encode = msgspec.json.Encoder(order="deterministic").encode

#: Target of what no single queue, pool or project has.
CLUSTER = Target()
#: A session ends that was not used for so long.
IDLE_NS = HOUR_NS
#: Name of the caller of a gateway without sign-on that names none.
ANYBODY = "anonymous"
#: Judged submits of a caller that are remembered.
SUBMITS_KEPT = 8


class FoldedRights(Protocol):
    """Views as far as a caller needs them."""

    sequence: int
    access: AccessState
    #: Returns the login name of a principal, or its id.
    name_of: Callable[[str], str]


class Caller:
    """Sender of a request. `OPEN_CALLER` stands for everybody where sign-on is off."""

    __slots__ = (
        "_around_rights",
        "_submits",
        "_submits_epoch",
        "_views",
        "act_as",
        "counted_epoch",
        "credential",
        "expires_ns",
        "is_open",
        "is_token",
        "noted_ns",
        "principal",
        "refused",
        "used_ns",
        "user",
        "via",
    )

    def __init__(
        self,
        views: FoldedRights | None = None,
        *,
        principal: str = "",
        credential: str = "",
        is_token: bool = False,
        expires_ns: int = 0,
        act_as: str = "",
        used_ns: int = 0,
        refused: HttpError | None = None,
    ) -> None:
        self._views = views
        #: Text of the authority before the sequence of its rights and after it; made when first needed.
        self._around_rights: tuple[bytes, ...] = ()
        #: (queue, project) of submits that were judged, and the epoch of access in which they were.
        self._submits: tuple[tuple[str, str], ...] = ()
        self._submits_epoch: object = None
        #: Epoch of access in which the credential was found in force.
        self.counted_epoch: object = None
        #: True where sign-on is off: everything is allowed.
        self.is_open = views is None
        #: Opaque id of a person or service account; "" without sign-on.
        self.principal = principal
        #: Id of the token or of the sign-in session.
        self.credential = credential
        self.is_token = is_token
        self.via = f"{'token' if is_token else 'session'}:{credential}" if credential else ""
        #: Unix ns after which the credential does not count.
        self.expires_ns = expires_ns
        #: Principal for whom an admin acts; "" for none.
        self.act_as = act_as
        #: Name under which commands are sent: the principal, or the one for whom it acts.
        self.user = act_as or principal or ANYBODY
        #: Unix ns of its last request at this gateway, and of the use that is stored for all gateways (`uses.py`).
        self.used_ns = used_ns
        self.noted_ns = 0
        #: Reason why a cookie does not count, of a caller without a principal; routes that need a caller answer it.
        self.refused = refused

    def authority(self) -> Authority | None:
        """Return the right by which a command is sent now; None without sign-on."""
        if self._views is None:
            return None
        return Authority(principal=self.principal, via=self.via, rights=self._views.sequence, act_as=self.act_as)

    def authority_field(self) -> bytes:
        """Return `authority` as the last field of an encoded command, with the comma before it; b"" without sign-on. It is made for every
        submit, and only the sequence changes.
        """
        if self._views is None:
            return b""
        if not self._around_rights:
            field = b',"authority":' + _encode(
                Authority(principal=self.principal, via=self.via, rights=0, act_as=self.act_as)
            )
            before, marker, after = field.rpartition(b'"rights":0')
            self._around_rights = before + marker[:-1], after
        return b"%b%d%b" % (self._around_rights[0], self._views.sequence, self._around_rights[1])

    def may(self, verb: Verb, target: Target) -> bool:
        """Return True if the caller may use the verb on the target now."""
        if self._views is None:
            return True
        state = self._views.access
        if self.is_token:
            return state.may(self.principal, verb, target, self.credential)
        # Looked at here, too: a request may have been let through before its session ended, while its body was on its way.
        return self.credential in state.sessions and state.access.may(self.principal, verb, target)

    def has_submitted(self, queue: str, project: str) -> bool:
        """Return True if `note_submit` noted that the caller may submit there, and nothing about access or queues has changed since."""
        assert self._views is not None, "without sign-on nothing is judged"
        return self._submits_epoch is self._views.access.epoch and (queue, project) in self._submits

    def note_submit(self, queue: str, project: str) -> None:
        """Note that the caller may submit jobs of a project to a queue, as of now."""
        assert self._views is not None, "without sign-on nothing is judged"
        if self._submits_epoch is not self._views.access.epoch or len(self._submits) >= SUBMITS_KEPT:
            self._submits = ()
            self._submits_epoch = self._views.access.epoch
        self._submits = (*self._submits, (queue, project))

    def may_anywhere(self, verb: Verb) -> bool:
        """Return True if there may be something on which the caller may use the verb: a list then shows it."""
        if self._views is None:
            return True
        state = self._views.access
        held = state.access.may_anywhere(self.principal, verb) or (
            verb in OWNER_VERBS and state.access.principals.get(self.principal, False)
        )
        return held and (not self.is_token or state.has_verb(self.credential, verb))

    def reaches(self, verb: Verb) -> tuple[Reach, ...]:
        """Return the parts of the cluster that must all cover a target, as `AccessState.reaches` does; () without sign-on."""
        if self._views is None:
            return ()
        return self._views.access.reaches(self.principal, verb, self.credential if self.is_token else "")

    def require(self, verb: Verb, target: Target, *, hidden: HttpError | None = None, sees: Verb | None = None) -> None:
        """Raise HttpError unless the caller may use the verb on the target: 403 with what is missing, or `hidden`, the answer
        about a thing that does not exist, where the caller may not even see the target (by the verb `sees`).
        """
        if self.may(verb, target):
            return
        if hidden is not None and not (sees is not None and sees != verb and self.may(sees, target)):
            raise hidden
        raise self.denial(verb, target)

    def denial(self, verb: Verb, target: Target) -> HttpError:
        """Return the 403 with the missing verb, what it is missing on, the roles held, and who could grant it."""
        assert self._views is not None, "without sign-on nothing is denied"
        facts = self._views.access.access.why_not(self.principal, verb, target)
        on = target_words(target)
        named, givers = self._views.name_of, list(map(self._views.name_of, facts.givers))
        holds = [f"{named(grant.subject)} is {grant.role} in {grant.scope}" for grant in facts.holds]
        why = MissingRight(verb=verb, on=on, roles=holds, givers=givers)
        if self.is_token and self._views.access.access.may(self.principal, verb, target):
            why.token = True
            hint = "this token is limited to fewer rights than its owner has: use another one"
        elif givers:
            hint = f"{', '.join(givers[:5])} could grant it"
        else:
            hint = "an admin of the cluster could grant it"
        challenge = b'Bearer error="insufficient_scope", scope="%b"' % verb.encode()
        return HttpError(
            403,
            "insufficient_scope",
            f"you may not {verb} on {on}",
            hint=hint,
            why=why,
            headers=((b"www-authenticate", challenge),),
        )

    def ended(self, now_ns: int) -> str:
        """Return the reason why the credential does not count any more, "" while it does."""
        if self._views is None:
            return ""
        state, is_token = self._views.access, self.is_token
        if self.credential not in (state.tokens if is_token else state.sessions):
            if not state.access.principals.get(self.principal, False):
                return "suspended"
            return "token_revoked" if is_token else "session_ended"
        if now_ns >= self.expires_ns:
            return "expired"
        return "idle" if not is_token and now_ns - self.used_ns > IDLE_NS else ""

    def acting_as(self, principal: str) -> "Caller":
        """Return this caller acting for another principal."""
        return Caller(
            self._views,
            principal=self.principal,
            credential=self.credential,
            is_token=self.is_token,
            expires_ns=self.expires_ns,
            act_as=principal,
            used_ns=self.used_ns,
        )


#: Caller of every request where sign-on is off.
OPEN_CALLER = Caller()


def target_words(target: Target) -> str:
    """Return what a right is missing on, in words: "queue:research/vision", "job:812", "the cluster"."""
    for kind in ("job", "volume", "queue", "project", "pool"):
        if name := getattr(target, kind):
            return f"{kind}:{name}"
    return "the cluster"
